package control

import (
	"testing"

	"github.com/weft-go/weft/control/internal/records"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
)

// The bytes of the records of unexpected hits. Those of other records are in the packages that store them.
func TestGoldenRecords(t *testing.T) {
	r := func(key []byte, v any, empty func() any) golden.Record {
		return golden.Record{Key: key, Version: records.Version, Value: v, Empty: empty}
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"hit":  r([]byte("ctl:hit:0000000029455920"), &hitRecord{Seconds: []int64{0, 2, 1}}, func() any { return new(hitRecord) }),
		"hits": r(keys.ControlHits(), &hitsRecord{Total: 3, Last: 1767355202000000}, func() any { return new(hitsRecord) }),
	})
}
