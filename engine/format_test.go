package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/integrity"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// madeEarlier makes s, which is new, the store of a release that had the checkpoints of a workflow under its id.
func madeEarlier(t testing.TB, s storage.Storage) {
	t.Helper()
	put(t, s, keys.Meta("store"), stampOf(t, 1, 1, engine.OwnershipCASRequired.String()))
}

// FMT-3: a store keeps the layout of the release that made it, and everything works in it: a takeover, another life, a reset,
// the history, those who follow it, a purge, and the next workflow with the same id. In a new store, checkpoints
// are stored under the generation of their workflow, in the order in which workflows begin.
func TestFormatsOfStores(t *testing.T) {
	for name, earlier := range map[string]bool{"of an earlier release": true, "new": false} {
		t.Run(name, func(t *testing.T) {
			onAllStores(t, func(t *testing.T, s storage.Storage) {
				if earlier {
					madeEarlier(t, s)
				}
				var done tally
				work := &activity.Activity[string, string]{Name: "work", Run: func(_ context.Context, in string) (string, error) {
					done.add(in)
					return in, nil
				}}
				wf := &engine.Workflow[int, string]{Name: "w", Func: func(run *engine.Run, lives int) (string, error) {
					if _, err := work.Do(run, "first"); err != nil {
						return "", err
					}
					if _, err := yes.Receive(run); err != nil {
						return "", err
					}
					if lives > 1 {
						return "", engine.ContinueAsNew(run, lives-1)
					}
					return work.Do(run, "last")
				}}
				under := func() (ids, generations int) {
					return len(entries(t, s, "wf:o:ckpt:")), len(entries(t, s, "log:"))
				}
				options := []any{wf, leases}
				p := boot(t, s, options...)
				stamp := get(t, s, keys.Meta("store"))
				start(t, wf, p, "o", 2)
				send(t, yes, p, "o", "go", "a")
				eventually(t, "it has begun its second life", func() bool { return done.of("first") == 2 })
				p.kill()

				p = boot(t, s, options...)
				send(t, yes, p, "o", "go", "b")
				if got, err := soon(wf.Handle(p, "o")); got != "last" || err != nil {
					t.Fatalf("after a takeover: %q, %v", got, err)
				}
				if ids, generations := under(); earlier != (ids > 0) || earlier != (generations == 0) {
					t.Errorf("%d checkpoints under the id, %d under generations", ids, generations)
				}
				operations := operations(historyOf(t, p.Engine, "o"))
				before := operations[len(operations)-1]
				if err := p.Reset(ctx, "o", before, audit); err != nil {
					t.Fatal(err)
				}
				if got, err := soon(wf.Handle(p, "o")); got != "last" || err != nil || done.of("last") != 2 || done.of("first") != 2 {
					t.Fatalf("after a reset: %q, %v, %d and %d calls", got, err, done.of("first"), done.of("last"))
				}
				all, err := followed(p.Follow(ctx, "o", ""))
				if err != nil || len(all) == 0 || all[len(all)-1].Kind != checkpoint.KindEnded {
					t.Errorf("followed %d events, %v", len(all), err)
				}
				if err := p.Purge(ctx, "o", audit); err != nil {
					t.Fatal(err)
				}
				if ids, generations := under(); ids+generations > 0 {
					t.Errorf("purged, and there are %d checkpoints under the id, %d under generations", ids, generations)
				}
				h := start(t, wf, p, "o", 1)
				send(t, yes, p, "o", "go", "c")
				if got, err := soon(h); got != "last" || err != nil {
					t.Errorf("the next one: %q, %v", got, err)
				}
				p.stop(t)
				if now := get(t, s, keys.Meta("store")); string(now) != string(stamp) {
					t.Errorf("the stamp is %q, was %q", now, stamp)
				}
				for _, problem := range integrity.Check(ctx, s, time.Now()) {
					t.Error(problem)
				}
			})
		})
	}
}
