package storagetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func openMemory(testing.TB) storage.Storage { return new(memory.Store) }

// persistent stores outlive Close: each is a Faulty without faults around a store
// that is never closed.
var persistent = Adapter{
	Open: func(testing.TB) storage.Storage { return NewFaulty(new(memory.Store), nil) },
	Reopen: func(t testing.TB, s storage.Storage) storage.Storage {
		if !isClosed(s) {
			t.Fatal(storage.ErrInUse)
		}
		return again(s)
	},
}

// shared stores are persistent ones that may be opened several times.
var shared = Adapter{
	Open: func(testing.TB) storage.Storage { return claimShared(NewFaulty(new(memory.Store), nil)) },
	Reopen: func(_ testing.TB, s storage.Storage) storage.Storage {
		return claimShared(again(s.(storage.Wrapper).Unwrap()))
	},
}

func isClosed(s storage.Storage) bool {
	_, err := s.Get(context.Background(), []byte("a"))
	return errors.Is(err, storage.ErrClosed)
}

// again opens the data of s, a persistent store, again.
func again(s storage.Storage) storage.Storage { return NewFaulty(s.(*Faulty).inner, nil) }

func claimShared(s storage.Storage) storage.Storage { return sharing{withOpening(s)} }

// withOpening returns s, which claims to be Shared as it is.
func withOpening(s storage.Storage) *flawed {
	return &flawed{Storage: s, caps: func(c *storage.Capabilities) { c.Shared = true }}
}

// A sharing store has no Opening, whatever it wraps.
type sharing struct{ *flawed }

func (sharing) Opening() string { return "" }

func TestStoresThatKeepTheRules(t *testing.T) {
	for name, a := range map[string]Adapter{
		"memory":     {Open: openMemory},
		"persistent": persistent,
		"shared":     shared,
		"without conditions": {
			Open: func(testing.TB) storage.Storage { return NoConditions(new(memory.Store)) },
			Want: &storage.Capabilities{
				AtomicBatch:     true,
				ReadAfterWrite:  true,
				ScanConsistency: storage.Snapshot,
				MaxBatch:        new(memory.Store).Capabilities().MaxBatch,
			},
		},
	} {
		t.Run(name, func(t *testing.T) { Run(t, a) })
	}
}

func TestFlawsAreFound(t *testing.T) {
	for _, f := range flaws {
		for _, name := range f.breaks {
			t.Run(f.what+"/"+name, func(t *testing.T) {
				t.Parallel()
				r := find(t, name)
				var got *recorder
				if name == "CloseStopsGoroutines" { // it waits for a minute
					synctest.Test(t, func(t *testing.T) { got = try(t, r, f.adapter()) })
				} else {
					got = try(t, r, f.adapter())
				}
				if !got.failed {
					t.Fatalf("a store that %s: got no failure, want rule %s broken\n%s", f.what, name, got)
				}
				says := r.says
				if strings.Contains(got.String(), "a store without conditionalBatch refuses") {
					says = "a store without conditionalBatch refuses"
				}
				for _, part := range []string{"rule broken: " + says, "got", "want"} {
					if !strings.Contains(got.String(), part) {
						t.Errorf("message: got %q, want %q in it", got, part)
					}
				}
			})
		}
	}
}

// Every rule must find a flaw, or it proves nothing.
func TestEveryRuleFindsAFlaw(t *testing.T) {
	broken := map[string]bool{}
	for _, f := range flaws {
		for _, name := range f.breaks {
			broken[name] = true
		}
	}
	for _, r := range rules {
		if !broken[r.name] {
			t.Errorf("rule %s: got no store that breaks it, want one among the flaws", r.name)
		}
	}
}

func TestRulesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rules {
		if seen[r.name] || seen[r.says] || r.says == "" {
			t.Errorf("rule %q, %q: got it twice or without words", r.name, r.says)
		}
		seen[r.name], seen[r.says] = true, true
	}
}

func TestDurableWithoutReopenFails(t *testing.T) {
	durable := Adapter{Open: func(testing.TB) storage.Storage {
		return &flawed{Storage: new(memory.Store), caps: func(c *storage.Capabilities) { c.Durable = true }}
	}}
	if got := try(t, find(t, "ReopenKeeps"), durable); !got.failed {
		t.Errorf("a store that claims Durable and is not opened again: got no failure\n%s", got)
	}
}

func TestRulesThatAreNotClaimedAreSkipped(t *testing.T) {
	modest := Adapter{Open: func(testing.TB) storage.Storage {
		return &flawed{Storage: new(memory.Store), caps: func(c *storage.Capabilities) { *c = storage.Capabilities{ReadAfterWrite: true} }}
	}}
	for name, want := range map[string]string{
		"BatchIsSeenWhole":        "needs atomicBatch",
		"CancelledIsAllOrNothing": "needs atomicBatch",
		"ReopenKeeps":             "not persistent",
	} {
		got := try(t, find(t, name), modest)
		if got.failed || !got.skipped || !strings.Contains(got.String(), want) {
			t.Errorf("%s: got failed %v, skipped %v, %q, want it skipped with %q", name, got.failed, got.skipped, got, want)
		}
	}
}

func find(t *testing.T, name string) rule {
	t.Helper()
	i := slices.IndexFunc(rules, func(r rule) bool { return r.name == name })
	if i < 0 {
		t.Fatalf("got no rule %s", name)
	}
	return rules[i]
}

// try tests a rule on a store without failing t.
func try(t testing.TB, r rule, a Adapter) *recorder {
	rec := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer rec.cleanUp()
		r.run(rec, a)
	}()
	<-done
	return rec
}

// A recorder is a testing.TB that records failures.
type recorder struct {
	testing.TB

	mu       sync.Mutex // guards the fields below
	failed   bool
	skipped  bool
	told     []string
	cleanups []func()
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.told, "\n")
}

func (r *recorder) tell(failed bool, s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.told = append(r.told, s)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Helper()                           {}
func (r *recorder) Log(args ...any)                   { r.tell(false, fmt.Sprint(args...)) }
func (r *recorder) Logf(format string, args ...any)   { r.tell(false, fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)                 { r.tell(true, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.tell(true, fmt.Sprintf(format, args...)) }
func (r *recorder) FailNow()                          { r.tell(true, "FailNow"); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }

func (r *recorder) Skip(args ...any) {
	r.Log(args...)
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) cleanUp() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}
