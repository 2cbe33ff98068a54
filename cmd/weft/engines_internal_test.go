package main

import (
	"testing"
	"time"

	"github.com/weft-go/weft"
)

// The command looks once at a lease, so it does not know that an engine is alive: it says when the lease was renewed. An
// engine that may be alive is not left out.
func TestAnEngineWithALeaseIsSeen(t *testing.T) {
	now := time.Date(2026, 7, 29, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		engine weft.EngineInfo
		want   string
		mayBe  bool
	}{
		{weft.EngineInfo{Alive: true, LeaseTTL: 15 * time.Second, Renewed: now.Add(-3500 * time.Millisecond)}, "seen 3s ago", true},
		{weft.EngineInfo{Alive: true, LeaseTTL: 15 * time.Second, Renewed: now.Add(-26 * time.Hour)}, "seen 26h0m0s ago", true},
		{weft.EngineInfo{Alive: true, LeaseTTL: 15 * time.Second, Renewed: now.Add(time.Minute)}, "seen 0s ago", true}, // by its clock
		{weft.EngineInfo{LeaseTTL: 15 * time.Second, Renewed: now}, "dead", false},
		{weft.EngineInfo{LeaseTTL: 15 * time.Second, Renewed: now, Stopped: now}, "stopped", false},
		{weft.EngineInfo{Alive: true}, "alive", true},
	} {
		x := &client{place: place{kind: "postgres"}}
		if got := x.stateText(c.engine, now); got != c.want || x.mayLive(c.engine) != c.mayBe {
			t.Errorf("%+v: got %q, may be alive: %v; want %q, %v", c.engine, got, x.mayLive(c.engine), c.want, c.mayBe)
		}
	}
}
