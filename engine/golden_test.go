package engine

import (
	"testing"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
)

// FMT-21, FMT-22: the bytes of the engine's own records.
func TestGoldenRecords(t *testing.T) {
	const gen, inc = "01JGZ3Q8X0000000000000000A", "host-01JGZ3Q8X0000000000000000B"
	r := func(key []byte, v any, empty func() any) golden.Record {
		return golden.Record{Key: key, Version: checkpoint.Version, Value: v, Empty: empty}
	}
	engine := func(e registration) golden.Record {
		return r(keys.Engine(inc), &e, func() any { return new(registration) })
	}
	deployment := func(a activeRecord) golden.Record {
		return r(keys.Meta("deployment"), &a, func() any { return new(activeRecord) })
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"stamp":         r(keys.Meta("store"), &stamp{Format: format, Shards: 1, Ownership: OwnershipCASRequired.String()}, func() any { return new(stamp) }),
		"stamp-single":  r(keys.Meta("store"), &stamp{Format: format, Shards: 1, Ownership: OwnershipSingleOwner.String()}, func() any { return new(stamp) }),
		"row":           r(keys.Index(gen), &row{ID: "order-42"}, func() any { return new(row) }),
		"engine":        engine(registration{Name: "host", Opening: "OPENING", Since: 1767355200000000}),
		"engine-gone":   engine(registration{Name: "host", Opening: "OPENING", Since: 1767355200000000, Stopped: 1767355201000000}),
		"engine-torn":   engine(registration{Name: "host", Opening: "OPENING", Since: 1767355200000000, Stopped: 1767355201000000, Cut: true}),
		"engine-lease":  engine(registration{Name: "host", Since: 1767355200000000, Nonce: "01JGZ3Q8X0000000000000000C", TTL: 15000000}),
		"engine-dead":   engine(registration{Name: "host", Since: 1767355200000000, Nonce: "01JGZ3Q8X0000000000000000C", TTL: 15000000, Dead: true}),
		"engine-queues": engine(registration{Name: "host", Since: 1767355200000000, Workflows: []string{"order"}, Queues: []string{"bulk", "print"}}),
		"engine-clock":  engine(registration{Name: "host", Since: 1767355200000000, Nonce: "01JGZ3Q8X0000000000000000C", TTL: 15000000, Clock: 1767355205000000, Proven: 1767355204000000}),
		"rate":          r(keys.Rate("print"), &admissions{Times: []int64{1767355200000000, 1767355200000007}}, func() any { return new(admissions) }),
		"engine-counts": engine(registration{
			Name: "host", Since: 1767355200000000, Nonce: "01JGZ3Q8X0000000000000000C", TTL: 15000000,
			Workflows: []string{"order", "refund"}, Takeovers: 4, LostRaces: 3, Fenced: 2, Unknown: 1,
		}),
		"floor":                  r(floorKey, &floorRecord{Floor: 1767355201 << 20, By: "ann", Why: "restore of Tuesday", At: 1767355200000000}, func() any { return new(floorRecord) }),
		"engine-deployed":        engine(registration{Name: "host", Opening: "OPENING", Since: 1767355200000000, Deployment: "2026-07-29"}),
		"deployment":             deployment(activeRecord{Deployment: "2026-07-29", Before: "2026-07-28", By: "ann", Why: "release", At: 1767355200000000}),
		"deployment-rolled-back": deployment(activeRecord{Deployment: "2026-07-28", By: "ann", Why: "too slow", At: 1767355201000000}),
	})
}
