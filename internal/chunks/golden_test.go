package chunks

import (
	"testing"

	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
)

// FMT-1, FMT-2, FMT-3: the bytes of each record.
func TestGoldenRecords(t *testing.T) {
	const gen = "01JGZ3Q8X0000000000000000A"
	head := func(h Head) golden.Record {
		return golden.Record{Key: keys.Stream("order-42", "words"), Version: 1, Value: &h, Empty: func() any { return new(Head) }}
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"head":        head(Head{Generation: gen, Count: 7}),
		"head-closed": head(Head{Generation: gen, Count: 7, Closed: "3.1"}),
		"chunk": {
			Key: keys.Chunk(keys.ChunksOf("order-42", "words"), 6), Version: 1, Empty: func() any { return new(Chunk) },
			Value: &Chunk{Generation: gen, ID: "chnk_01JGZ3Q8X0000000000000000B", At: 1767355200000000, Operation: "2", Attempt: 3, Codec: "cbor", Data: []byte("word")},
		},
		"chunk-call": {
			Key: keys.Chunk(keys.WorldChunksOf("wrun_1", "words"), 6), Version: 1, Empty: func() any { return new(Chunk) },
			Value: &Chunk{ID: "chnk_01JGZ3Q8X0000000000000000B", At: 1767355200000000, Data: []byte("word"), Call: "req_1", Part: 2},
		},
	})
}
