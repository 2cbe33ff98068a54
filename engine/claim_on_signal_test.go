package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// writes says whether b puts a key of a family.
func writes(b storage.Batch, family string) bool {
	return slices.ContainsFunc(b.Ops, func(o storage.Op) bool {
		return o.Kind == storage.PutOp && strings.HasPrefix(string(o.Key), family)
	})
}

// once is a run that receives one signal, and tells whether there is another.
var once = flow("once", func(run *engine.Run) (string, error) {
	v, err := yes.Receive(run)
	if err != nil {
		return "", err
	}
	more, err := yes.Drain(run)
	return sprint(v, len(more)), err
})

// A signal to a parked run is accepted in the commit that claims the run: nobody
// is told to look for it.
func TestSignalTakesParkedRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var mu sync.Mutex
		var commits []storage.Batch
		f := storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" && isOf(c.Batch, "w") {
				mu.Lock()
				defer mu.Unlock()
				commits = append(commits, kept(c.Batch))
			}
			return storagetest.None
		})
		p := bootOn(t, f, once, parkAfter(time.Second))
		h := start(t, once, p, "w", "")
		time.Sleep(time.Minute)
		mu.Lock()
		commits = nil
		mu.Unlock()
		tell(t, yes, p, "w", "ann")
		if got := result(t, h); got != "ann0" {
			t.Errorf("got %q", got)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(commits) == 0 || !writes(commits[0], "sigres:") || !writes(commits[0], "held:") {
			t.Errorf("the acceptance has not claimed: %v", commits)
		}
		if slices.ContainsFunc(commits, func(b storage.Batch) bool { return writes(b, "todo:") }) {
			t.Errorf("the run was put on a list: %v", commits)
		}
	})
}

// A run that a signal takes knows of what it waits for without a look at its inbox, and
// finds there what came before under other names (SG5); a Drain ends with a look. Its record tells the sender how
// many signals there were; only one that was wrong about that reads the counter.
func TestTakenRunKnowsItsSignals(t *testing.T) {
	no := &signal.Signal[string]{Name: "no"}
	for name, c := range map[string]struct {
		before []*signal.Signal[string] // that come while it is parked
		by     string                   // whose place in the order is told
		want   string
		looks  int
		counts int
	}{
		"the first":          {nil, "a", "a", 1, 0},
		"behind another one": {[]*signal.Signal[string]{no}, "a", "ano-0", 3, 1},
		"behind two":         {[]*signal.Signal[string]{no, no}, "a", "ano-0no-1", 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var looks, counts atomic.Int64
				f := storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
					if c.Method == "Scan" && strings.HasPrefix(string(c.Range.Start), "inbox:w") {
						looks.Add(1)
					}
					if c.Method == "Get" && string(c.Key) == "sigseq:w" {
						counts.Add(1)
					}
					return storagetest.None
				})
				wf := flow("both", func(run *engine.Run) (string, error) {
					v, err := yes.Receive(run)
					if err != nil {
						return "", err
					}
					others, err := no.Drain(run)
					return v + strings.Join(others, ""), err
				})
				p := bootOn(t, f, wf, parkAfter(time.Second))
				h := start(t, wf, p, "w", "")
				time.Sleep(time.Minute)
				for i, s := range c.before {
					if _, err := s.Send(ctx, p, "w", sprint("no-", i), nil); err != nil {
						t.Fatal(err)
					}
				}
				looks.Store(0)
				counts.Store(0)
				tell(t, yes, p, "w", c.by)
				if got := result(t, h); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				if n := looks.Load(); n != int64(c.looks) {
					t.Errorf("the inbox was read %d times, want %d", n, c.looks)
				}
				if n := counts.Load(); n != int64(c.counts) {
					t.Errorf("the counter was read %d times, want %d", n, c.counts)
				}
			})
		})
	}
}

// The commit that accepts and claims fails, before or after it is written, or its
// context ends: the signal is accepted once and received once.
func TestTakingFails(t *testing.T) {
	for name, fault := range map[string]storagetest.Fault{
		"before":    storagetest.ErrorBefore,
		"after":     storagetest.ErrorAfter,
		"cancelled": storagetest.CancelMiddle,
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				met := 0
				f := storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
					if c.Method != "Commit" || !writes(c.Batch, "sigres:") || !writes(c.Batch, "held:") || met > 2 {
						return storagetest.None
					}
					met++
					return fault
				})
				p := bootOn(t, f, once, parkAfter(time.Second))
				h := start(t, once, p, "w", "")
				time.Sleep(time.Minute)
				tell(t, yes, p, "w", "ann")
				if got := result(t, h); got != "ann0" || met == 0 {
					t.Errorf("got %q, the fault was met %d times", got, met)
				}
				received := 0
				for _, k := range kinds(historyOf(t, p.Engine, "w")) {
					if k == checkpoint.KindReceived {
						received++
					}
				}
				if received != 1 {
					t.Errorf("received %d times", received)
				}
			})
		})
	}
}

// A late is a store one of whose commits, which want chooses, lands only when it is
// told to: its caller is told of an error.
type late struct {
	storage.Storage
	want func(storage.Batch) bool
	kept chan storage.Batch
}

func (s *late) Unwrap() storage.Storage { return s.Storage }

func (s *late) Commit(ctx context.Context, b storage.Batch) error {
	if s.want(b) {
		select {
		case s.kept <- b:
			return errors.New("connection lost")
		default:
		}
	}
	return s.Storage.Commit(ctx, b)
}

// A claim of unknown outcome lands when nobody expects it any more: the sender has
// gone, and the engine has looked and found the run unclaimed. It is driven
// nevertheless.
func TestTakingLandsLate(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sending, gone := context.WithCancel(t.Context())
		s := &late{Storage: new(memory.Store), kept: make(chan storage.Batch, 1), want: func(b storage.Batch) bool {
			if !writes(b, "sigres:") || !writes(b, "held:") {
				return false
			}
			gone()
			return true
		}}
		p := boot(t, s, once, parkAfter(time.Second))
		h := start(t, once, p, "w", "")
		time.Sleep(time.Minute)
		if _, err := yes.Send(sending, p, "w", "ann", nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("send: %v", err)
		}
		time.Sleep(time.Minute)
		if i := describe(t, p, "w"); i.Owner != "" {
			t.Fatalf("claimed by %s", i.Owner)
		}
		if err := s.Storage.Commit(ctx, <-s.kept); err != nil {
			t.Fatal(err)
		}
		if got := result(t, h); got != "ann0" {
			t.Errorf("got %q", got)
		}
	})
}

// A signal that claims a run whose next attempt is due is not taken for the death of
// its owner: attempts keep their numbers.
func TestTakingCountsNoAttempt(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var attempts []int
		flaky := &activity.Activity[string, string]{Name: "flaky", Retry: activity.Retry{Backoff: 20 * time.Minute, MaxBackoff: 20 * time.Minute}, Run: func(ctx context.Context, _ string) (string, error) {
			if attempts = append(attempts, activity.InfoFrom(ctx).Attempt); len(attempts) < 2 {
				return "", errBroke
			}
			return "done", nil
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			f := flaky.Go(run, "")
			if _, err := yes.Receive(run); err != nil {
				return "", err
			}
			return f.Get(run)
		})
		f := storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Scan" && strings.HasPrefix(string(c.Range.Start), "todo:") {
				return storagetest.ErrorBefore // the engine does not find it by itself
			}
			return storagetest.None
		})
		p := bootOn(t, f, wf, parkAfter(time.Second))
		time.Sleep(time.Second) // it runs
		h := start(t, wf, p, "w", "")
		time.Sleep(time.Hour)
		if i := describe(t, p, "w"); i.Owner != "" {
			t.Fatalf("driven by %s", i.Owner)
		}
		tell(t, yes, p, "w", "ann")
		if got := result(t, h); got != "done" || !slices.Equal(attempts, []int{1, 2}) {
			t.Errorf("result %q after attempts %v, want 1 and 2", got, attempts)
		}
	})
}

// Where there is no room for it, a signalled run waits until there is.
func TestNoRoomToTake(t *testing.T) {
	virtual(t, func(t *testing.T) {
		busy := flow("busy", func(run *engine.Run) (string, error) {
			return engine.Step(run, "long", func(context.Context) (string, error) {
				time.Sleep(2 * time.Minute)
				return "done", nil
			})
		})
		p := boot(t, fresh(t), once, busy, parkAfter(time.Second), func(c *engine.Config) { c.MaxRunsInMemory = 1 })
		h := start(t, once, p, "w", "")
		time.Sleep(time.Minute)
		b := start(t, busy, p, "b", "")
		time.Sleep(time.Second)
		tell(t, yes, p, "w", "ann")
		time.Sleep(time.Minute)
		if i := describe(t, p, "w"); i.Owner != "" {
			t.Errorf("driven by %s beside another, with room for one", i.Owner)
		}
		if got := result(t, h); got != "ann0" {
			t.Errorf("got %q", got)
		}
		result(t, b)
	})
}

// On a store that judges no conditions, a commit of unknown outcome which lands when
// the run has ended, does not make it run again.
func TestAcceptanceLandsLateOnSimpleStore(t *testing.T) {
	virtual(t, func(t *testing.T) {
		sending, gone := context.WithCancel(t.Context())
		s := &late{Storage: new(memory.Store), kept: make(chan storage.Batch, 1), want: func(b storage.Batch) bool {
			if !writes(b, "sigres:") {
				return false
			}
			gone()
			return true
		}}
		p := boot(t, s, once, parkAfter(time.Second), func(c *engine.Config) { c.Ownership = engine.OwnershipSingleOwner })
		h := start(t, once, p, "w", "")
		time.Sleep(time.Minute)
		if _, err := yes.Send(sending, p, "w", "ann", nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("send: %v", err)
		}
		tell(t, yes, p, "w", "bob")
		if got := result(t, h); got != "bob0" {
			t.Errorf("got %q", got)
		}
		if err := s.Storage.Commit(ctx, <-s.kept); err != nil {
			t.Fatal(err)
		}
		if i := describe(t, p, "w"); i.Status != checkpoint.StatusCompleted {
			t.Errorf("it has ended, and is %s", i.Status)
		}
	})
}
