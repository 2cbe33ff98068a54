package signal_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/weft-go/weft/signal"
)

// SIG-34: the answer to a signal has the six fields of the canonical result. Nothing in it
// belongs to a transport, such as a status or the id of a request.
func TestAcceptedBelongsToNoTransport(t *testing.T) {
	raw, err := json.Marshal(signal.Accepted{})
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	want := []string{"accepted", "acceptedAt", "signalId", "signalName", "signalStorageKey", "workflowId"}
	if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
}
