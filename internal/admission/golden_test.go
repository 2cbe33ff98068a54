package admission

import (
	"testing"

	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
)

// FMT-21, FMT-22: the bytes of the record of a rate.
func TestGoldenRecordOfARate(t *testing.T) {
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"rate": {Key: keys.Rate("print"), Version: journal.Version, Value: &admissions{Times: []int64{1767355200000000, 1767355200000007}}, Empty: func() any { return new(admissions) }},
	})
}
