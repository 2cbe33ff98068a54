package bulk_test

import (
	"bytes"
	"testing"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/bulk"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
)

// The bytes of the records of a bulk.
func TestGoldenRecordsOfBulks(t *testing.T) {
	const noon = 1767355200000000
	of := func(r bulk.Record) golden.Record {
		return golden.Record{Key: keys.Bulk("stop"), Version: bulk.Version, Value: &r, Empty: func() any { return new(bulk.Record) }}
	}
	token := bytes.Repeat([]byte{7}, 16)
	records := map[string]golden.Record{
		"refusals": {
			Key: keys.BulkRefusals("stop", 3), Version: bulk.Version, Empty: func() any { return new(bulk.Refusals) },
			Value: &bulk.Refusals{List: []bulk.Refusal{{ID: "order-7", Why: "has ended"}}},
		},
	}
	for _, do := range []weft.Verb{weft.BulkCancel, weft.BulkTerminate, weft.BulkResume, weft.BulkPurge, weft.BulkDelete, weft.BulkProtect, weft.BulkUnprotect} {
		records["started-"+string(do)] = of(bulk.Record{Do: do, Filter: bulk.Filter{Workflow: "order"}, By: "ann", Why: "bug", At: noon, Token: token})
	}
	for i, s := range []checkpoint.Status{checkpoint.StatusPending, checkpoint.StatusRunning, checkpoint.StatusCompleted, checkpoint.StatusFailed, checkpoint.StatusCancelled} {
		r := bulk.Record{
			Do: weft.BulkReset, Before: "2", Count: 10 + i, Per: 60000000, By: "ann", Why: "bug", At: noon, Token: token,
			Filter: bulk.Filter{
				Workflow: "order", Status: s, Attention: true, Parent: "all", TopLevel: true, Labels: map[string]string{"team": "blue"},
				IDPrefix: "o", Deployment: "green", NoNamespace: true, After: noon - 2, Before: noon - 1,
			},
			Behind: []byte("1767355200000000:01J"), Scan: true, Begun: true, Rest: true, Engine: "host-01J",
			Page: []bulk.Member{{ID: "order-8", Generation: "01JGZ3Q8X0000000000000000A", Life: 2}, {ID: "order-9", Damage: "a wrong checksum"}},
			Done: 5, Refused: 1, Lists: 1, Last: "order-7",
		}
		records["reset-"+string(s)] = of(r)
	}
	records["signal"] = of(bulk.Record{
		Do: weft.BulkSignal, Filter: bulk.Filter{IDPrefix: "o"}, By: "ann", Why: "told so", At: noon, EndedAt: noon + 1, Token: token,
		Stopped: &bulk.Stop{By: "ben", Why: "enough"},
		Signal: &bulk.Signal{
			Name: "approved", ID: "bulk_01JGZ3Q8X0000000000000000B", Own: true, Codec: "cbor", Data: []byte{0xf5},
			Digest: bytes.Repeat([]byte{0xd1}, 32), Canonical: bytes.Repeat([]byte{0xd2}, 32), Memory: 60000000,
		},
	})
	records["taken-up"] = of(bulk.Record{
		Do: weft.BulkCancel, Filter: bulk.Filter{IDPrefix: "o"}, By: "ann", Why: "bug", At: noon, Token: token, Begun: true, Engine: "host-01J",
		Page: []bulk.Member{{ID: "order-8", Generation: "01JGZ3Q8X0000000000000000A", Life: 2, TakenUp: noon - 3}},
	})
	records["held"] = of(bulk.Record{
		Do: weft.BulkUnprotect, Filter: bulk.Filter{IDPrefix: "o"}, By: "ann", Why: "closed", At: noon, Token: token, Begun: true, Engine: "host-01J",
		Page: []bulk.Member{{ID: "order-8", Generation: "01JGZ3Q8X0000000000000000A", Held: noon - 4}},
	})
	golden.Check(t, "testdata/v1", records)
}
