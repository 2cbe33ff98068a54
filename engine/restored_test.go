package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/storagetest"
)

// A restoring is a service whose store is restored from a backup: the tokens that its
// activities had, by workflow.
type restoring struct {
	t      *testing.T
	tokens chan [2]any
	next   *signal.Signal[int]
	work   *engine.Workflow[int, int]
	first  sync.Once
	during func() // called in the first attempt
}

func newRestoring(t *testing.T) *restoring {
	r := &restoring{t: t, tokens: make(chan [2]any, 100), next: &signal.Signal[int]{Name: "next"}}
	touch := &activity.Activity[int, int]{Name: "touch", Run: func(ctx context.Context, n int) (int, error) {
		info := activity.InfoFrom(ctx)
		r.first.Do(r.during)
		r.tokens <- [2]any{info.WorkflowID, info.FencingToken}
		return n, nil
	}}
	r.work = &engine.Workflow[int, int]{Name: "work", Func: func(run *engine.Run, n int) (int, error) {
		for {
			if _, err := touch.Do(run, n); err != nil {
				return 0, err
			}
			if _, err := r.next.Receive(run); err != nil {
				return 0, err
			}
		}
	}}
	return r
}

// token waits for the next attempt, which is one of workflow id.
func (r *restoring) token(id string) uint64 {
	r.t.Helper()
	got := <-r.tokens
	if got[0] != id {
		r.t.Fatalf("got an attempt of %v, want one of %s", got[0], id)
	}
	return got[1].(uint64)
}

// before makes a backup in the first attempt, and goes on from there: it returns the backup, and
// the highest token of each workflow.
func (r *restoring) before(s storage.Storage) (backup []storage.Entry, highest map[string]uint64) {
	t := r.t
	t.Helper()
	r.during = func() {
		for e, err := range storage.All(ctx, s, storage.Range{}) {
			if err != nil {
				t.Error(err)
			}
			backup = append(backup, e)
		}
	}
	p := boot(t, s, r.work)
	start(t, r.work, p, "old", 1)
	r.token("old")
	highest = map[string]uint64{}
	for n := range 4 {
		if _, err := r.next.Send(ctx, p, "old", n, nil); err != nil {
			t.Fatal(err)
		}
		highest["old"] = r.token("old")
	}
	start(t, r.work, p, "new", 1) // of which the backup knows nothing
	highest["new"] = r.token("new")
	p.kill()
	return backup, highest
}

// after restores the backup to s, and returns the tokens of what goes on from there.
func (r *restoring) after(s storage.Storage, backup []storage.Entry, prepare func(*engine.Engine)) map[string][]uint64 {
	t := r.t
	t.Helper()
	for _, e := range backup {
		if bytes.HasPrefix(e.Key, []byte("eng:")) {
			continue // who is not known is dead: no lease is waited for
		}
		if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(e.Key, e.Value)}}); err != nil {
			t.Fatal(err)
		}
	}
	if prepare != nil {
		prepare(made(t, s))
	}
	p := boot(t, s, r.work)
	defer p.kill()
	got := map[string][]uint64{"old": {r.token("old")}}
	for n := range 4 {
		if _, err := r.next.Send(ctx, p, "old", n, nil); err != nil {
			t.Fatal(err)
		}
		got["old"] = append(got["old"], r.token("old"))
	}
	start(t, r.work, p, "new", 1)
	got["new"] = append(got["new"], r.token("new"))
	return got
}

func notAbove(tokens map[string][]uint64, highest map[string]uint64) (n int) {
	for id, all := range tokens {
		for _, token := range all {
			if token <= highest[id] {
				n++
			}
		}
	}
	return n
}

// The fencing tokens that a restored store gives are above all that it gave before, also
// within a second of the backup, or by a clock that went back.
func TestRestoredStoreRepeatsNoToken(t *testing.T) {
	virtual(t, func(t *testing.T) {
		r := newRestoring(t)
		backup, highest := r.before(new(memory.Store))
		if n := notAbove(r.after(new(memory.Store), backup, nil), highest); n == 0 {
			t.Error("without a word no token was repeated: then this test shows nothing")
		}
	})
	virtual(t, func(t *testing.T) {
		r := newRestoring(t)
		backup, highest := r.before(new(memory.Store))
		for round := range 3 { // each undoes the one before
			var above uint64
			if round == 2 { // of a clock that was a year ahead
				above = highest["old"] + 365*24*3600<<20
				highest["old"], highest["new"] = above, above
			}
			tokens := r.after(new(memory.Store), backup, func(e *engine.Engine) {
				if err := e.Restored(ctx, above, audit); err != nil {
					t.Fatal(err)
				}
			})
			if n := notAbove(tokens, highest); n > 0 {
				t.Errorf("restore %d: got the tokens %v, %d of them not above %v", round, tokens, n, highest)
			}
			for id, all := range tokens {
				highest[id] = all[len(all)-1]
			}
		}
	})
}

// The same on stores that outlive a process.
func TestRestoredStoresRepeatNoToken(t *testing.T) {
	for _, name := range []string{"sqlite", "bolt", "postgres"} {
		t.Run(name, func(t *testing.T) {
			open := func() storage.Storage { return fileOrServer(t, name) }
			r := newRestoring(t)
			backup, highest := r.before(open())
			tokens := r.after(open(), backup, func(e *engine.Engine) {
				if err := e.Restored(ctx, 0, audit); err != nil {
					t.Fatal(err)
				}
			})
			if n := notAbove(tokens, highest); n > 0 {
				t.Errorf("got the tokens %v, %d of them not above %v", tokens, n, highest)
			}
		})
	}
}

// Restored may fail at any call to the store, and at the next one too. Who calls it again,
// in the same process or after a crash in another, has the tokens that it promises.
func TestEveryStoreCallOfRestoredMayFail(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		r := newRestoring(t)
		s := store.Open(t)
		backup, highest := r.before(s)
		s.Close()
		above := highest["old"] + 365*24*3600<<20 // no claim is above that by the clock alone
		// play has the faults at a call and at the next one, and returns how many calls
		// there were.
		play := func(call int, faults [2]storagetest.Fault) (calls int) {
			t.Helper()
			s := store.Open(t)
			defer s.Close()
			what := fmt.Sprintf("%s at call %d, then %s", sweep.Names[faults[0]], call, sweep.Names[faults[1]])
			failed, begun := 0, false
			tokens := r.after(s, backup, func(*engine.Engine) {
				f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
					if !begun {
						return storagetest.None
					}
					switch calls++; calls {
					case call:
						return faults[0]
					case call + 1:
						return faults[1]
					}
					return storagetest.None
				})
				e := made(t, f)
				begun = true
				for {
					bounded, cancel := context.WithTimeout(ctx, 10*time.Second) // a process that has crashed waits for ever
					err := e.Restored(bounded, above, audit)
					cancel()
					if err == nil {
						break
					}
					if failed++; failed > 3 {
						t.Fatalf("%s: it fails each time: %v", what, err)
					}
					if errors.Is(err, storagetest.ErrCrashed) {
						e = made(t, s)
					}
				}
			})
			for id, all := range tokens {
				for _, token := range all {
					if token <= above {
						t.Errorf("%s: %s got the token %d, want one above %d", what, id, token, above)
					}
				}
			}
			if crash := faults[0] == storagetest.CrashBefore || faults[0] == storagetest.CrashAfter; crash && failed == 0 {
				t.Errorf("%s: Restored returned no error", what)
			}
			return calls
		}
		calls := play(0, [2]storagetest.Fault{})
		seconds := []storagetest.Fault{storagetest.None}
		if os.Getenv("WEFT_TORTURE") != "" || strings.HasSuffix(t.Name(), "memory") {
			seconds = append(seconds, sweep.Faults...)
		}
		plays := 0
		for call := 1; call <= calls; call++ {
			for _, first := range sweep.Faults {
				for _, second := range seconds {
					play(call, [2]storagetest.Fault{first, second})
					plays++
				}
			}
		}
		t.Logf("%d calls, %d plays", calls, plays)
		if calls < 2 {
			t.Errorf("Restored made %d calls, want a read and a commit at least", calls)
		}
	})
}

func fileOrServer(t *testing.T, name string) storage.Storage {
	t.Helper()
	var s storage.Storage
	var err error
	if open, ok := damaged[name]; ok {
		s, err = open(t.TempDir() + "/store.db")
	} else {
		s, err = stored(postgres.Open(ctx, pgtest.URL(t), nil))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestRestoredIsRefused(t *testing.T) {
	p := boot(t, new(memory.Store))
	if err := p.Restored(ctx, 0, audit); !errors.Is(err, engine.ErrNotApplicable) {
		t.Errorf("while the engine runs: got %v, want ErrNotApplicable", err)
	}
	e := made(t, new(memory.Store))
	if err := e.Restored(ctx, 0, engine.Actor{}); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("without who and why: got %v, want ErrInvalid", err)
	}
	if err := e.Restored(ctx, 1<<63, audit); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("above a token that there cannot be: got %v, want ErrInvalid", err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if err := e.Restored(done, 0, audit); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is done: got %v, want its error", err)
	}
	e.Close()
	if err := e.Restored(ctx, 0, audit); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("closed: got %v, want ErrClosed", err)
	}
}
