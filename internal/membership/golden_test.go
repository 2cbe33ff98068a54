package membership

import (
	"testing"

	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
)

// FMT-21, FMT-22: the bytes of the records of engines.
func TestGoldenRegistrations(t *testing.T) {
	const inc = "host-01JGZ3Q8X0000000000000000B"
	engine := func(r Registration) golden.Record {
		return golden.Record{Key: keys.Engine(inc), Version: journal.Version, Value: &r, Empty: func() any { return new(Registration) }}
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"engine":        engine(Registration{Name: "host", Opening: "OPENING", Since: 1767355200000000}),
		"engine-gone":   engine(Registration{Name: "host", Opening: "OPENING", Since: 1767355200000000, Stopped: 1767355201000000}),
		"engine-torn":   engine(Registration{Name: "host", Opening: "OPENING", Since: 1767355200000000, Stopped: 1767355201000000, Cut: true}),
		"engine-lease":  engine(Registration{Name: "host", Since: 1767355200000000, Nonce: "01JGZ3Q8X0000000000000000C", TTL: 15000000}),
		"engine-dead":   engine(Registration{Name: "host", Since: 1767355200000000, Nonce: "01JGZ3Q8X0000000000000000C", TTL: 15000000, Dead: true}),
		"engine-queues": engine(Registration{Name: "host", Since: 1767355200000000, Workflows: []string{"order"}, Queues: []string{"bulk", "print"}}),
		"engine-clock":  engine(Registration{Name: "host", Since: 1767355200000000, Nonce: "01JGZ3Q8X0000000000000000C", TTL: 15000000, Clock: 1767355205000000, Proven: 1767355204000000}),
		"engine-counts": engine(Registration{
			Name: "host", Since: 1767355200000000, Nonce: "01JGZ3Q8X0000000000000000C", TTL: 15000000,
			Workflows: []string{"order", "refund"}, Takeovers: 4, LostRaces: 3, Fenced: 2, Unknown: 1,
		}),
		"engine-lists":   engine(Registration{Name: "host", Opening: "OPENING", Since: 1767355200000000, Lists: true}),
		"engine-session": engine(Registration{Name: "host", Since: 1767355200000000, Nonce: "01JGZ3Q8X0000000000000000C", TTL: 15000000, Session: "1767355100000000 1767355150000000 -42"}),
		"engine-versions": engine(Registration{
			Name: "host", Since: 1767355200000000, Workflows: []string{"order", "refund"},
			Versions: map[string]map[string]int{"order": {"fraud-check": 1, "ship-late": 2}, "refund": {"ledger": 1}},
		}),
		"engine-deployed": engine(Registration{Name: "host", Opening: "OPENING", Since: 1767355200000000, Deployment: "2026-07-29"}),
	})
}
