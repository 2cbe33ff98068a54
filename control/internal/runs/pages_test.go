package runs

import (
	"encoding/json"
	"testing"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
)

// A page of events has no more bytes than a page may have, but one event at least.
func TestPagesOfEventsAreBounded(t *testing.T) {
	events := make([]wire.Event, 100)
	for i := range events {
		events[i].Result = make(json.RawMessage, operation.MaxPageBytes/4)
	}
	if n := fit(events); n != 3 {
		t.Errorf("%d events that have a quarter of a page each", n)
	}
	events[0].Result = make(json.RawMessage, 2*operation.MaxPageBytes)
	if n := fit(events); n != 1 {
		t.Errorf("%d events, and the first one is larger than a page", n)
	}
	if n := fit(events[50:52]); n != 2 {
		t.Errorf("%d of two events that fit", n)
	}
}
