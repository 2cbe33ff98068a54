package run

import (
	"errors"
	"testing"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/fifo"
	"github.com/weft-go/weft/internal/journal"
)

// QRY-3, VER-5: a checkpoint that counts, or that ends a life, is made only when all durable events are delivered.
func TestNoCheckpointCountsBeforeDelivery(t *testing.T) {
	wf := &journal.Workflow{ID: "w", Base: 1}
	x := &Execution{Hold: &journal.Hold{Workflow: wf}, host: &Host{Env: Env{Read: func() journal.Reading { return journal.Reading{Wall: time.Unix(1, 0)} }}}}
	settled, parked := []checkpoint.Event{{Kind: checkpoint.KindSettled}}, []checkpoint.Event{{Kind: checkpoint.KindParked}}
	refused := func(err error) bool { return errors.As(err, new(*undeliveredError)) }
	for _, c := range []struct {
		events  []checkpoint.Event
		refused bool
	}{
		{settled, true},
		{nil, true}, // labels alone
		{[]checkpoint.Event{{Kind: checkpoint.KindEnded}}, true},
		{parked, false},
		{[]checkpoint.Event{{Kind: checkpoint.KindHeld, Name: string(weft.ReasonDamaged)}}, false},
	} {
		x.log = fifo.Queue[logged]{}
		if err := x.appending(new(journal.Write), journal.Change{Events: c.events}); err != nil {
			t.Errorf("%v, all is delivered: %v", c.events, err)
		}
		x.log.Put(logged{})
		if err := x.appending(new(journal.Write), journal.Change{Events: c.events}); refused(err) != c.refused {
			t.Errorf("%v, an event is not delivered: %v, want it refused: %t", c.events, err, c.refused)
		}
	}
	if err := x.atPlace(nil); !refused(err) {
		t.Errorf("the end of a life, an event is not delivered: %v", err)
	}
}
