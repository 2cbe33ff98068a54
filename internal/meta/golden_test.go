package meta

import (
	"testing"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
)

// FMT-21, FMT-22: the bytes of the records of a store.
func TestGoldenRecordsOfAStore(t *testing.T) {
	r := func(key []byte, v any, empty func() any) golden.Record {
		return golden.Record{Key: key, Version: journal.Version, Value: v, Empty: empty}
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"stamp-latest": r(keys.Meta("store"), &stamp{Format: latest, Shards: 1, Ownership: weft.OwnershipCASRequired.String()}, func() any { return new(stamp) }),
		"stamp":        r(keys.Meta("store"), &stamp{Format: 1, Shards: 1, Ownership: weft.OwnershipCASRequired.String()}, func() any { return new(stamp) }),
		"stamp-single": r(keys.Meta("store"), &stamp{Format: 1, Shards: 1, Ownership: weft.OwnershipSingleOwner.String()}, func() any { return new(stamp) }),
		"lists":        r(keys.Meta("lists"), &ListsRecord{Done: true}, func() any { return new(ListsRecord) }),
		"lists-pass":   r(keys.Meta("lists"), &ListsRecord{Begun: 1767355200000000, Place: "01JGZ3Q8X0000000000000000A"}, func() any { return new(ListsRecord) }),
		"floor":        r(FloorKey, &FloorRecord{Floor: 1767355201 << 20, By: "ann", Why: "restore of Tuesday", At: 1767355200000000}, func() any { return new(FloorRecord) }),
	})
}
