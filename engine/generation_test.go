package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// firstCommit returns s for a client whose first commit has this fault. Directly behind it something happens.
func firstCommit(s storage.Storage, fault storagetest.Fault, happens func()) storage.Storage {
	met := false
	return &afterCommit{Storage: storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
		if met || c.Method != "Commit" {
			return storagetest.None
		}
		met = true
		return fault
	}), happens: happens}
}

// OPS-2: a verb that was decided on a workflow is not done to the next one with its id, whether it was done to the
// first or not.
func TestVerbsOfAnEarlierGeneration(t *testing.T) {
	for verb, do := range map[string]func(e *engine.Engine) error{
		"Cancel":      func(e *engine.Engine) error { return e.Cancel(ctx, "o", audit) },
		"ClearSignal": func(e *engine.Engine) error { return e.ClearSignal(ctx, "o", "yes", "waits", audit) },
		"Label":       func(e *engine.Engine) error { return e.Label(ctx, "o", map[string]string{"a": "b"}, audit) },
		"Protect":     func(e *engine.Engine) error { return e.Protect(ctx, "o", audit) },
		"Reset":       func(e *engine.Engine) error { return e.Reset(ctx, "o", "1", audit) },
		"Resolve": func(e *engine.Engine) error {
			return e.Resolve(ctx, "o", "2", activity.CompletedWithResult("x"), audit)
		},
		"Resume":    func(e *engine.Engine) error { return e.Resume(ctx, "o", audit) },
		"Terminate": func(e *engine.Engine) error { return e.Terminate(ctx, "o", audit) },
	} {
		t.Run(verb, func(t *testing.T) {
			onSomeStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s := store.Open(t)
				defer s.Close()
				var known atomic.Bool
				pay := puzzling(&known)
				wf := flow("wf", func(run *engine.Run) (string, error) {
					v, err := yes.Receive(run) // 1
					if err != nil {
						return "", err
					}
					return pay.Do(run, v) // 2
				})
				p := boot(t, s, wf, rareLeases)
				attended := func(signal string) string { // and returns its record
					start(t, wf, p, "o", "")
					send(t, yes, p, "o", signal, signal)
					send(t, yes, p, "o", "waits", "waits")
					time.Sleep(time.Minute)
					if got := describe(t, p, "o"); len(got.Attention) != 1 {
						t.Fatalf("no operator is asked: %+v", got)
					}
					record, err := journal.Load(ctx, s, "o")
					if err != nil {
						t.Fatal(err)
					}
					return string(record.Raw())
				}
				for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter} {
					attended("first")
					var record string
					var waits []string
					operator := made(t, firstCommit(s, fault, func() {
						if err := errors.Join(p.Unprotect(ctx, "o", audit), p.Delete(ctx, "o", audit)); err != nil {
							t.Error(err)
						}
						record = attended("second")
						waits = entries(t, s, "inbox:o:")
					}), wf)
					if err := do(operator); !errors.Is(err, engine.ErrNotFound) {
						t.Errorf("fault %v: %v, want ErrNotFound", fault, err)
					}
					operator.Close()
					now, err := journal.Load(ctx, s, "o")
					if err != nil || string(now.Raw()) != record {
						t.Errorf("fault %v: the next workflow is changed: %+v, %v", fault, now, err)
					}
					if got := entries(t, s, "inbox:o:"); !slices.Equal(got, waits) {
						t.Errorf("fault %v: signals of the next workflow: %q, want %q", fault, got, waits)
					}
					if err := p.Delete(ctx, "o", audit); err != nil {
						t.Error(err)
					}
				}
				whole(t, s)
				p.stop(t)
			})
		})
	}
}

// RET-4: a removal of unknown outcome does not remove the next workflow with the id.
func TestRemovalOfAnEarlierGeneration(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := flow("wf", nil2)
		p := boot(t, s, wf)
		for verb, remove := range map[string]func(e *engine.Engine, id string) error{
			"purge":  func(e *engine.Engine, id string) error { return e.Purge(ctx, id, audit) },
			"delete": func(e *engine.Engine, id string) error { return e.Delete(ctx, id, audit) },
		} {
			result(t, start(t, wf, p, verb, ""))
			operator := made(t, firstCommit(s, storagetest.ErrorAfter, func() { result(t, start(t, wf, p, verb, "")) }), wf)
			if err := remove(operator, verb); err != nil || removed(t, p, verb) {
				t.Errorf("%s: %v; the next one is gone: %t", verb, err, removed(t, p, verb))
			}
			operator.Close()
		}
		p.stop(t)
	})
}

// answering answers the commits of a client with its errors, as long as it has some.
type answering struct {
	storage.Storage
	errs []error
}

func (r *answering) Unwrap() storage.Storage { return r.Storage }

func (r *answering) Commit(ctx context.Context, b storage.Batch) error {
	if len(r.errs) == 0 {
		return r.Storage.Commit(ctx, b)
	}
	err := r.errs[0]
	r.errs = r.errs[1:]
	return err
}

// Whoever cannot keep the owner from committing says which call that was.
func TestWhoCannotInterruptTheOwner(t *testing.T) {
	s := new(memory.Store)
	wf := flow("wf", func(run *engine.Run) (string, error) { return yes.Receive(run) })
	p := boot(t, s, wf)
	start(t, wf, p, "o", "")
	waitFor(t, "it begins", func() bool { return !describe(t, p, "o").StartedAt.IsZero() })
	p.stop(t)
	for verb, do := range map[string]func(e *engine.Engine) error{
		"reset":     func(e *engine.Engine) error { return e.Reset(ctx, "o", "", audit) },
		"terminate": func(e *engine.Engine) error { return e.Terminate(ctx, "o", audit) },
	} {
		e := made(t, &answering{s, []error{storage.ErrConflict, storage.ErrConflict, storage.ErrInvalidBatch}})
		if err := do(e); !errors.Is(err, storage.ErrInvalidBatch) || !strings.HasPrefix(err.Error(), "engine: "+verb+` "o": `) {
			t.Errorf("%s: %v", verb, err)
		}
		e.Close()
	}
}
