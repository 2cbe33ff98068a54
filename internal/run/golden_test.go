package run

import (
	"testing"

	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
)

// FMT-21, FMT-22: the bytes of the records of starts.
func TestGoldenRecordsOfStarts(t *testing.T) {
	r := func(key []byte, v any, empty func() any) golden.Record {
		return golden.Record{Key: key, Version: journal.Version, Value: v, Empty: empty}
	}
	deployment := func(a ActiveRecord) golden.Record {
		return r(keys.Meta("deployment"), &a, func() any { return new(ActiveRecord) })
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"deployment":             deployment(ActiveRecord{Deployment: "2026-07-29", Before: "2026-07-28", By: "ann", Why: "release", At: 1767355200000000}),
		"deployment-rolled-back": deployment(ActiveRecord{Deployment: "2026-07-28", By: "ann", Why: "too slow", At: 1767355201000000}),
	})
}
