package control_test

import (
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// HTTP-74: the audit row of a signal is in the store when the signal is answered, also that of a repetition. The
// process may have died between the acceptance and the row of the first call, and then the
// repetition is the only one that was acknowledged. No time passes here: a row that is written
// later is not found.
func TestARepeatedSignalIsAuditedBeforeItsAnswer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		x := planeOn(t, new(memory.Store))
		if _, err := x.engine.StartWorkflow(t.Context(), &engine.StartRequest{Workflow: "w", ID: "order-1"}); err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 2; n++ {
			x.do("POST", "/v1/runs/order-1/signals/approved", adminSecret, `{"signalId":"evt"}`).is(200)
			if rows := x.do("GET", "/v1/audit?action=signals.send", adminSecret, nil).data(); len(rows) != n {
				t.Errorf("after %d requests: got %d rows, want %d", n, len(rows), n)
			}
		}
	})
}
