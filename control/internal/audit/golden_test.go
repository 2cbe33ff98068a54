package audit

import (
	"testing"

	"github.com/weft-go/weft/control/internal/records"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
)

// HTTP-75 to HTTP-83: the bytes of rows.
func TestGoldenRecords(t *testing.T) {
	const ns, id = "acme/prod", "01JGZ3Q8X0000000000000000A"
	row := func(a Row) golden.Record {
		a.ID, a.Action, a.Resource, a.Lane = id, "runs.create", "/v1/runs", "public"
		a.CreatedAt, a.CorrelationID, a.IP, a.UserAgent = 1767355200000000, "c1", "192.0.2.1", "curl/8"
		return golden.Record{Key: keys.ControlAudit(ns, id), Version: records.Version, Value: &a, Empty: func() any { return new(Row) }}
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"audit": row(Row{
			KeyID: "shop", Project: "acme", Environment: "prod", Result: Success, Status: 201,
			RunID: "order-42", IdempotencyKey: "k1", Deduped: true, Reason: "the customer called",
		}),
		"audit-refused": row(Row{Result: Failure, Status: 401, Code: "unauthorized", Count: 17}),
	})
}
