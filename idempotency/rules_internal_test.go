package idempotency

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/storage/memory"
)

// Section 3, Forgetting, FEN-12: a wall clock that jumps in the first minute of a Ledger of which nothing was asked yet
// is noticed by its first sweep: what was sealed before stays.
func TestClockThatJumpsBeforeTheFirstCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, runs := new(memory.Store), 0
		e := &Effect[string, string]{Name: "pay", Run: func(context.Context, string) (string, error) {
			runs++
			return "paid", nil
		}}
		do := func(l *Ledger) (Receipt[string], error) { return e.Do(t.Context(), l, keyNumber(1), "5 EUR") }
		before := opens(t, s, nil, nil)
		if _, err := do(before); err != nil {
			t.Fatal(err)
		}
		before.Close()
		var wrong atomic.Int64
		l := opens(t, s, nil, func() time.Duration { return time.Duration(wrong.Load()) })
		l.dropAsked() // locks what the sweep locks, which so sees the clock that opens has set
		time.Sleep(10 * time.Second)
		wrong.Store(int64(7 * 24 * time.Hour))
		time.Sleep(50 * time.Minute)
		wrong.Store(0)
		if r, err := do(l); err != nil || r.Decision != DecidedDuplicate || runs != 1 {
			t.Errorf("%+v, %v after %d runs, want a duplicate", r, err, runs)
		}
	})
}

// The states that users see are those of the records.
func TestStatesAreThoseOfTheRecords(t *testing.T) {
	for public, stored := range map[State]entry.State{
		StateInProgress: entry.InProgress, StateReleased: entry.Released, StateSealed: entry.Sealed,
		StateFailed: entry.Failed, StateIndeterminate: entry.Indeterminate,
	} {
		if string(public) != string(stored) {
			t.Errorf("%q is stored as %q", public, stored)
		}
	}
}
