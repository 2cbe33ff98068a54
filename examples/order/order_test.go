package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/enginetest"
	"github.com/weft-go/weft/internal/exampletest"
)

// TestOrderGoesOnAfterKill kills the program while it charges and while it sleeps, and
// lets it end; the next process finds the order done.
func TestOrderGoesOnAfterKill(t *testing.T) {
	program, db := exampletest.Build(t), filepath.Join(t.TempDir(), "order.db")
	start := func() *exampletest.Play {
		return exampletest.Start(t, program, "-db", db, "-pace", "200ms")
	}

	p := start()
	p.UntilNumber()
	p.Until("charge: charging")
	p.Kill()

	p = start()
	p.Until("order-1 was under way")
	p.Until("(recorded) nobody has approved in time")
	if again := p.Until("charge: charging"); strings.Contains(again, "reserve:") {
		t.Errorf("reserve was done again:\n%s", again)
	}
	p.Until("to think it over")
	p.Kill()

	p = start()
	p.Until("(recorded) charge")
	if again := p.Until("order-1 is done: approved by itself"); strings.Contains(again, "charge: charging") {
		t.Errorf("charge was done again:\n%s", again)
	}
	p.End()

	p = start()
	p.Until("order-1 was done already")
	p.Until("order-2 is done")
	p.End()
}

// VER-10: today's code replays samples of runs that an earlier build has executed. Engine.ExportSample
// has exported them.
func TestSamplesReplay(t *testing.T) {
	enginetest.Replay(t, "testdata/*.history", newShop(time.Second).order)
}
