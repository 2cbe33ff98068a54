package runs

import (
	"testing"

	"github.com/weft-go/weft/control/internal/records"
	"github.com/weft-go/weft/internal/golden"
)

// Cursors are no records, but clients keep them.
func TestGoldenCursors(t *testing.T) {
	const id = "01JGZ3Q8X0000000000000000A"
	r := func(key []byte, v any, empty func() any) golden.Record {
		return golden.Record{Key: key, Version: records.Version, Value: v, Empty: empty}
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"cursor-signals":   r([]byte("signals:r:true"), &signalPlace{Seq: 3, Rest: true, Name: "approved", ID: "evt_1"}, func() any { return new(signalPlace) }),
		"cursor-values":    r([]byte("values:r"), &valuePlace{Name: "progress"}, func() any { return new(valuePlace) }),
		"cursor-chunks":    r([]byte("chunks:stream:r:words"), &chunkPlace{Index: 7}, func() any { return new(chunkPlace) }),
		"cursor-events":    r([]byte("events:r:true"), &eventCursor{Checkpoint: 7, Position: 1}, func() any { return new(eventCursor) }),
		"cursor-events-id": r([]byte("events:r:true"), &eventCursor{Checkpoint: 7, Position: 1, ID: id}, func() any { return new(eventCursor) }),
	})
}
