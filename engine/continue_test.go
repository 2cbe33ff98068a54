package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/integrity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A sum is what an adder carries from life to life.
type sum struct {
	Lives int
	Seen  []int
}

var added = &signal.Signal[int]{Name: "add"}

// adder receives numbers, some in each life, until a negative one comes.
func adder(each int) *engine.Workflow[sum, sum] {
	return &engine.Workflow[sum, sum]{Name: "adder", Func: func(run *engine.Run, s sum) (sum, error) {
		s.Lives++
		for range each {
			n, err := added.Receive(run)
			if err != nil {
				return s, err
			}
			if n < 0 {
				return s, nil
			}
			s.Seen = append(s.Seen, n)
		}
		return sum{}, engine.ContinueAsNew(run, s)
	}}
}

func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// CAN-1, CAN-2: no signal is lost or received twice, however often the run continues.
func TestSignalsOfAllLives(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		const count = 60
		w := adder(3)
		p := boot(t, s, w)
		h := start(t, w, p, "a", sum{})
		for i := range count {
			if _, err := added.Send(ctx, p, "a", i, &signal.Options{ID: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := added.Send(ctx, p, "a", -1, nil); err != nil {
			t.Fatal(err)
		}
		got, err := soon(h)
		if err != nil || !slices.Equal(got.Seen, numbers(count)) || got.Lives != count/3+1 {
			t.Errorf("%+v, %v", got, err)
		}
		first := historyOf(t, p.Engine, "a")[0]
		if ks := kinds([]checkpoint.Checkpoint{first}); !slices.Contains(ks, checkpoint.KindContinued) {
			t.Errorf("the last life begins with %v", ks)
		}
		if left := logged(t, s, "a"); len(left) > 4 {
			t.Errorf("%d checkpoints are left: %v", len(left), left)
		}
		if left := entries(t, s, "exp:"); len(left) != count+1 {
			t.Errorf("%v", left)
		}
	})
}

// again is a workflow whose life n does f(run, n), and which then continues, until life last.
func again(name string, last int, f func(run *engine.Run, life int) error) *engine.Workflow[int, int] {
	return &engine.Workflow[int, int]{Name: name, Func: func(run *engine.Run, life int) (int, error) {
		if err := f(run, life); err != nil {
			return 0, err
		}
		if life == last {
			return life, nil
		}
		return 0, engine.ContinueAsNew(run, life+1)
	}}
}

// inLife waits until a run is in a life.
func inLife(t testing.TB, c engine.Client, id string, life int) engine.Info {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is in life %d", id, life), func() bool { return describe(t, c, id).Life >= life })
	i := describe(t, c, id)
	if i.Life != life {
		t.Fatalf("%s is in life %d, want %d", id, i.Life, life)
	}
	return i
}

// CAN-1, CAN-2: several senders at once, at full rate, and kills between any two lives: no signal is lost or received
// twice, those of each sender come in their order, and signals do not hold the run up. One that is sent in each life
// has its first answer in the last (CAN-3).
func TestSignalsThroughKills(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const senders = 4
		each, between := 12, 7 // signals of each sender, and acknowledgements between two kills
		if os.Getenv("WEFT_TORTURE") != "" {
			each, between = 501, 2
		}
		count := senders * each
		s := fresh(t)
		w := adder(2)
		p := boot(t, s, w)
		h := start(t, w, p, "a", sum{})
		zero := func(p *process) signal.Accepted {
			t.Helper()
			a, err := added.Send(ctx, p, "a", 0, &signal.Options{ID: "0"})
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		first := zero(p)

		var current atomic.Pointer[process]
		current.Store(p)
		acknowledged, again := make(chan struct{}), new(atomic.Int64)
		for sender := range senders {
			go func() {
				for n := sender; n < count; n += senders {
					for {
						p := current.Load()
						if p == nil {
							time.Sleep(time.Millisecond)
							continue
						}
						_, err := added.Send(ctx, p, "a", n, &signal.Options{ID: fmt.Sprint(n)})
						if err == nil && current.Load() == p {
							break
						}
						again.Add(1) // it was killed meanwhile: what it says does not count
						if current.Load() == p {
							t.Errorf("sender %d: %v", sender, err)
							break
						}
					}
					acknowledged <- struct{}{}
				}
			}()
		}
		kills := 0
		for i := range count {
			<-acknowledged
			if i%between != between-1 {
				continue
			}
			kills++
			current.Store(nil) // from here on nothing is acknowledged
			p.kill()
			s = snapshot(t, s)
			p = boot(t, s, w)
			h = w.Handle(p, "a")
			if a := zero(p); !a.Repeated || canonical(a) != canonical(first) {
				t.Fatalf("sent again: %+v, want %+v", a, first)
			}
			current.Store(p)
		}
		if _, err := added.Send(ctx, p, "a", -1, nil); err != nil {
			t.Fatal(err)
		}
		got := result(t, h)
		for sender := range senders {
			var of []int
			for _, n := range got.Seen {
				if n%senders == sender {
					of = append(of, n)
				}
			}
			if !slices.IsSorted(of) {
				t.Errorf("of sender %d: %v", sender, of)
			}
		}
		slices.Sort(got.Seen)
		if !slices.Equal(got.Seen, numbers(count)) || got.Lives != count/2+1 {
			t.Errorf("%d lives, %v", got.Lives, got.Seen)
		}
		for _, problem := range integrity.Check(ctx, s, time.Time{}) {
			t.Error(problem)
		}
		t.Logf("%d signals in %d lives, %d kills, %d sent again because of one", count, got.Lives, kills, again.Load())
	})
}

// CAN-4: whoever waits for the result, a parent and a request to stop follow a run through its
// lives.
func TestWhoeverWaitsFollowsThroughAllLives(t *testing.T) {
	virtual(t, func(t *testing.T) {
		child := again("child", 5, func(run *engine.Run, life int) error { return run.Sleep(10 * time.Second) })
		endless := again("endless", 1000, func(run *engine.Run, life int) error { return run.Sleep(10 * time.Second) })
		parent := flow("parent", func(run *engine.Run) (string, error) {
			n, err := child.AsChild(engine.ChildOptions{ID: "five"}).Do(run, 0)
			if err != nil {
				return "", err
			}
			endless.AsChild(engine.ChildOptions{ID: "asked"}).Go(run, 0)
			return fmt.Sprint(n), run.Sleep(51 * time.Second)
		})
		p := boot(t, fresh(t), child, endless, parent, parkAfter(-1))
		alone := start(t, child, p, "alone", 0)
		h := start(t, parent, p, "p", "")
		waited := make(chan error, 1)
		go func() {
			n, err := alone.Result(ctx)
			if err == nil && n != 5 {
				err = fmt.Errorf("result %d", n)
			}
			waited <- err
		}()
		inLife(t, p, "alone", 3)
		if i := describe(t, p, "five"); i.Life != 3 || i.Parent != "p" {
			t.Errorf("%+v", i)
		}
		if got := result(t, h); got != "5" {
			t.Errorf("the parent got %q", got)
		}
		if err := <-waited; err != nil {
			t.Error(err)
		}
		if _, err := outcome(endless.Handle(p, "asked")); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("the parent has ended, and its child in a later life: %v", err)
		}
		if i := describe(t, p, "asked"); i.Life != 5 {
			t.Errorf("%+v", i)
		}
		stopped := start(t, endless, p, "stopped", 0)
		inLife(t, p, "stopped", 2)
		if err := stopped.Cancel(ctx, audit); err != nil {
			t.Fatal(err)
		}
		if _, err := outcome(stopped); !errors.Is(err, engine.ErrCancelled) {
			t.Error(err)
		}
		// A repeated start is of the input with which the first life began.
		if _, err := endless.Start(ctx, p, "stopped", 0); err != nil {
			t.Error(err)
		}
		if _, err := endless.Start(ctx, p, "stopped", 2); !errors.Is(err, engine.ErrExists) {
			t.Error(err)
		}
	})
}

// CAN-5: before a run continues, its children are asked to stop, or awaited, and its attempts are
// given up, however many there are.
func TestWhatALifeLeavesBehind(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const count = 300
		var ended tally
		child := &engine.Workflow[string, string]{Name: "child", Func: func(run *engine.Run, d string) (string, error) {
			defer ended.add(d)
			if d == "await" {
				return "", run.Sleep(2 * time.Minute)
			}
			return "", run.Sleep(decade)
		}}
		hang := &activity.Activity[int, int]{Name: "hang", Run: func(ctx context.Context, n int) (int, error) {
			ended.add("begun")
			<-ctx.Done()
			ended.add("attempt")
			return 0, ctx.Err()
		}}
		var begun time.Time
		w := again("w", 1, func(run *engine.Run, life int) error {
			if life == 1 {
				begun = run.Now()
				return nil
			}
			for i := range count {
				hang.Go(run, i)
			}
			for range count {
				child.Go(run, "cancel")
			}
			for range 3 {
				child.AsChild(engine.ChildOptions{OnParentEnd: engine.ParentEndAwait}).Go(run, "await")
			}
			return run.Sleep(time.Minute)
		})
		s := fresh(t)
		p := boot(t, s, w, child)
		at := time.Now()
		result(t, start(t, w, p, "w", 0))
		eventually(t, "all have ended", func() bool {
			return ended.of("cancel") == count && ended.of("await") == 3 && ended.of("attempt") == ended.of("begun")
		})
		if begun.Sub(at) < 2*time.Minute {
			t.Errorf("the next life began after %v", begun.Sub(at))
		}
		if left := entries(t, s, "kid:"); len(left) > 0 {
			t.Errorf("%d records of children are left", len(left))
		}
		for _, problem := range integrity.Check(ctx, s, time.Time{}) {
			t.Error(problem)
		}
		time.Sleep(3 * time.Hour)
		if left := append(entries(t, s, "kid:"), entries(t, s, "exp:")...); len(left) > 0 {
			t.Errorf("left for good: %d, such as %s", len(left), left[0])
		}
	})
}

// CAN-6: late attempts and progress of one life change nothing in the next, and do not hold it up.
// What is left of earlier lives is removed by later commits, or by an engine; nothing else is.
func TestLateAttemptsOfAnEarlierLife(t *testing.T) {
	virtual(t, func(t *testing.T) {
		free := make(chan struct{})
		deaf := &activity.Activity[int, int]{Name: "deaf", Run: func(ctx context.Context, n int) (int, error) {
			_ = activity.Heartbeat(ctx, 1)
			for range 4 { // deaf to its context
				time.Sleep(10 * time.Second)
				_ = activity.Heartbeat(ctx, 2)
			}
			<-free
			return 0, errBroke
		}}
		quick := &activity.Activity[int, int]{Name: "quick", IdempotencyKey: func(n int) string { return fmt.Sprint(n) }, Run: func(ctx context.Context, n int) (int, error) { return n, activity.Heartbeat(ctx, n) }}
		w := again("w", 3, func(run *engine.Run, life int) error {
			if _, err := quick.Do(run, life); err != nil {
				return err
			}
			deaf.Go(run, life)
			return run.Sleep(15 * time.Second)
		})
		s := fresh(t)
		p := boot(t, s, w, parkAfter(-1))
		h := start(t, w, p, "w", 0)
		inLife(t, p, "w", 2)
		if left := append(entries(t, s, "act:"), entries(t, s, "beat:")...); len(left) > 2 {
			t.Errorf("of three lives: %v", left)
		}
		result(t, h) // although no attempt has returned
		close(free)
		time.Sleep(time.Minute)
		for _, c := range historyOf(t, p.Engine, "w") {
			for _, e := range c.Events {
				if n, _ := strconv.Atoi(e.Operation); n > 0 && n < 10 && e.Kind != checkpoint.KindGivenUp {
					t.Errorf("%+v in the last life, which begins with operation 10", e)
				}
			}
		}
		for _, problem := range integrity.Check(ctx, s, time.Time{}) {
			t.Error(problem)
		}
	})
}

// CAN-6: what a long life leaves is removed by the commits of the next one, or after an hour. It
// belongs to nobody meanwhile.
func TestRemainsOfALongLife(t *testing.T) {
	for _, c := range []struct {
		name string
		next int // operations of the next life before it waits
	}{{"by later commits", 20}, {"by an engine", 0}} {
		t.Run(c.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := fresh(t)
				w := again("w", 1, func(run *engine.Run, life int) error {
					n := 1500
					if life == 1 {
						n = c.next
					}
					for range n {
						if _, err := engine.Step(run, "s", func(context.Context) (int, error) { return 0, nil }); err != nil {
							return err
						}
					}
					if life == 0 {
						return nil
					}
					return run.Sleep(150 * time.Minute)
				})
				p := boot(t, s, w)
				start(t, w, p, "w", 0)
				inLife(t, p, "w", 1)
				eventually(t, "the next life waits", func() bool {
					waiting := describe(t, p, "w").Waiting
					return len(waiting) == 1 && strings.HasPrefix(waiting[0], "timer")
				})
				left, exp := len(logged(t, s, "w"))-1-c.next, len(entries(t, s, "exp:"))
				if c.next > 0 && (left != 0 || exp != 0) || c.next == 0 && (left < 400 || exp != 1) {
					t.Fatalf("%d checkpoints are left, and %d entries", left, exp)
				}
				for _, problem := range integrity.Check(ctx, s, time.Time{}) {
					t.Error(problem)
				}
				time.Sleep(2 * time.Hour)
				if left, exp := len(logged(t, s, "w"))-1-c.next, len(entries(t, s, "exp:")); left != 0 || exp != 0 {
					t.Errorf("after two hours %d checkpoints are left, and %d entries", left, exp)
				}
				if got := result(t, w.Handle(p, "w")); got != 1 {
					t.Error(got)
				}
			})
		})
	}
}

// CAN-6: a run that continues often leaves more than its commits have room for. An engine removes that while the run goes
// on so, and when nothing is left, nothing names the run any more.
func TestRemainsOfARunThatContinuesOften(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const busy, calls = 48, 80
		s := &hooked{Storage: fresh(t), max: storage.Size{Ops: 127, Bytes: 1 << 20}}
		call := &activity.Activity[int, int]{Name: "call", IdempotencyKey: func(n int) string { return fmt.Sprint(n) }, Run: func(_ context.Context, n int) (int, error) { return n, nil }}
		w := again("w", 1000, func(run *engine.Run, life int) error {
			for i := range calls {
				if life >= busy {
					break
				}
				if _, err := call.Do(run, life*calls+i); err != nil {
					return err
				}
			}
			return run.Sleep(10 * time.Minute)
		})
		p := boot(t, s, w, parkAfter(24*time.Hour))
		start(t, w, p, "w", 0)
		time.Sleep(4 * time.Hour)
		half := len(entries(t, s, "act:"))
		time.Sleep(3 * time.Hour)
		if left := len(entries(t, s, "act:")); half == 0 || left > half+calls {
			t.Errorf("after four hours %d records are left, after seven %d", half, left)
		}
		time.Sleep(5 * time.Hour)
		left := append(entries(t, s, "act:"), entries(t, s, "exp:")...)
		if checkpoints := len(logged(t, s, "w")); len(left) > 0 || checkpoints > 5 || describe(t, p, "w").Life < busy+10 {
			t.Errorf("of an idle run %d checkpoints and %d other records are left, such as %v", checkpoints, len(left), left[:min(len(left), 1)])
		}
		for _, problem := range integrity.Check(ctx, s, time.Time{}) {
			t.Error(problem)
		}
	})
}

// A moment is what a function sees at a place.
type moment struct {
	Life, Len int
	Now       int64
	Random    uint64
}

// CAN-7: in a life HistoryLen and Now begin anew, and random numbers are others. All are the same
// live and in each replay. A request to stop is told to each life.
func TestHistoryLenNowAndRandomOfALife(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var mu sync.Mutex
		seen := map[string][]moment{}
		w := again("w", 2, func(run *engine.Run, life int) error {
			note := func(place string) {
				mu.Lock()
				defer mu.Unlock()
				place = fmt.Sprint(run.ID(), " ", life, " ", place)
				seen[place] = append(seen[place], moment{life, run.HistoryLen(), run.Now().UnixMicro(), run.Random().Uint64()})
			}
			note("begin")
			for i := range 3 {
				if err := run.Sleep(time.Minute); err != nil {
					return err
				}
				note(fmt.Sprint(i))
			}
			return nil
		})
		s := fresh(t)
		p := boot(t, s, w, parkAfter(-1)) // each wake-up is a replay
		at := time.Now()
		h := start(t, w, p, "w", 0)
		result(t, h)
		p.stop(t)
		p = boot(t, s, w)
		result(t, start(t, w, p, "unparked", 0)) // no replay
		randoms := map[uint64]bool{}
		for life := range 3 {
			for i, place := range []string{"begin", "0", "1", "2"} {
				all, unparked := seen[fmt.Sprint("w ", life, " ", place)], seen[fmt.Sprint("unparked ", life, " ", place)]
				if len(all) == 0 || len(unparked) != 1 {
					t.Fatalf("life %d at %s: %v, and %v", life, place, all, unparked)
				}
				for _, m := range all {
					if m != all[0] {
						t.Errorf("life %d at %s: %+v, and in a replay %+v", life, place, all[0], m)
					}
				}
				if randoms[all[0].Random] {
					t.Errorf("life %d at %s: %d again", life, place, all[0].Random)
				}
				randoms[all[0].Random] = true
				want := i // an event for each timer, and those with which the life began
				if i > 0 {
					want += min(life, 1) + 1
				}
				if got := unparked[0].Len; got != want {
					t.Errorf("life %d at %s: HistoryLen is %d, want %d", life, place, got, want)
				}
				if got, want := time.UnixMicro(all[0].Now).Sub(at), time.Duration(3*life+i)*time.Minute; got < want || got > want+time.Minute/2 {
					t.Errorf("life %d at %s: Now is %v after the start, want %v", life, place, got, want)
				}
			}
		}
	})
}

// CAN-7: a request to stop that a life has passed over is told to the next.
func TestRequestToStopIsToldToTheNextLife(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var told tally
		w := again("w", 2, func(run *engine.Run, life int) error {
			if err := run.Sleep(time.Hour); !errors.Is(err, engine.ErrCancelled) {
				return errBroke
			}
			told.add(fmt.Sprint(life))
			return nil
		})
		p := boot(t, fresh(t), w)
		h := start(t, w, p, "w", 0)
		time.Sleep(time.Minute)
		if err := h.Cancel(ctx, audit); err != nil {
			t.Fatal(err)
		}
		result(t, h)
		if got := told.all(); !slices.Equal(got, []string{"0", "1", "2"}) {
			t.Errorf("told to lives %v", got)
		}
	})
}

// CAN-8: a life that fails undoes its own calls and none of an earlier life. (TestEveryStoreCallMayFail
// has every fault at every call of a run that continues.)
func TestALaterLifeUndoesNothingOfAnEarlierOne(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var c tally
		act := undoable(&c)
		w := again("w", 2, func(run *engine.Run, life int) error {
			if _, err := act.Do(run, fmt.Sprint(life)); err != nil {
				return err
			}
			if life == 1 {
				return errBroke
			}
			return nil
		})
		p := boot(t, fresh(t), w)
		if _, err := outcome(start(t, w, p, "w", 0)); err == nil {
			t.Error("it has not failed")
		}
		if got := c.all(); !slices.Equal(got, []string{"0", "1", "undo 1 got 1"}) {
			t.Error(got)
		}
	})
}

// CAN-9: a verb that was decided on one life is not done to another.
func TestVerbsOfAnEarlierLife(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var known atomic.Bool
		pay := puzzling(&known)
		w := again("w", 9, func(run *engine.Run, life int) error {
			pay.Go(run, fmt.Sprint(life))
			_, err := yes.Receive(run)
			return err
		})
		p := boot(t, s, w)
		start(t, w, p, "w", 0)
		asked := func(life int) string {
			t.Helper()
			var i engine.Info
			eventually(t, "a person is asked", func() bool {
				i = describe(t, p, "w")
				return i.Life == life && len(i.Attention) > 0
			})
			return i.Attention[0].Operation
		}
		next := func(life int) {
			t.Helper()
			tell(t, yes, p, "w", fmt.Sprint(life))
			eventually(t, "the next life", func() bool { return describe(t, p, "w").Life == life })
			asked(life)
		}
		life := 0
		for verb, do := range map[string]func(e *engine.Engine, operation string) error{
			"Resume": func(e *engine.Engine, _ string) error { return e.Resume(ctx, "w", audit) },
			"Resolve": func(e *engine.Engine, operation string) error {
				return e.Resolve(ctx, "w", operation, activity.CompletedWithResult("x"), audit)
			},
			"Reset": func(e *engine.Engine, _ string) error { return e.Reset(ctx, "w", "", audit) },
		} {
			operation := asked(life)
			life++
			// It continues between what the verb reads first and its commit.
			operator := made(t, &between{Storage: s, get: "wf:w", happens: func() { next(life) }}, w)
			if err := do(operator, operation); !errors.Is(err, engine.ErrNotApplicable) {
				t.Errorf("%s, decided on the life before: %v", verb, err)
			}
			operator.Close()
			if i := describe(t, p, "w"); len(i.Attention) == 0 || i.Attention[0].Operation == operation {
				t.Errorf("%s was done to the next life: %+v", verb, i)
			}
			if verb != "Resolve" { // which alone names an operation
				continue
			}
			// Its commit is done, its answer is lost, and the run continues.
			operation = asked(life)
			life++
			lost := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				if c.Method == "Commit" {
					return storagetest.ErrorAfter
				}
				return storagetest.None
			})
			after := made(t, &afterCommit{Storage: lost, happens: func() { next(life) }}, w)
			if err := do(after, operation); !errors.Is(err, engine.ErrNotApplicable) {
				t.Errorf("%s, of unknown outcome: %v", verb, err)
			}
			after.Close()
			// Told of the operation of an earlier life.
			if err := do(p.Engine, operation); !errors.Is(err, engine.ErrNotApplicable) {
				t.Errorf("%s of an operation of an earlier life: %v", verb, err)
			}
		}
		p.stop(t)
	})
}

// An afterCommit has something happen after its first commit.
type afterCommit struct {
	storage.Storage
	happens func()
	once    sync.Once
}

func (a *afterCommit) Unwrap() storage.Storage { return a.Storage }

func (a *afterCommit) Commit(ctx context.Context, b storage.Batch) error {
	err := a.Storage.Commit(ctx, b)
	a.once.Do(a.happens)
	return err
}

// waitFor waits in real time, for a minute at most.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 6000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("in vain: %s", what)
}

// CAN-10: what ContinueAsNew refuses, and that only returning its error has an effect.
func TestContinueAsNewRefuses(t *testing.T) {
	virtual(t, func(t *testing.T) {
		type secret struct{ hidden int }
		var stranger error
		w := &engine.Workflow[any, string]{Name: "any", Func: func(run *engine.Run, in any) (string, error) {
			switch in {
			case "unencodable":
				return "", engine.ContinueAsNew(run, make(chan int))
			case "lossy":
				return "", engine.ContinueAsNew(run, secret{1})
			case "stranger's":
				return "", stranger
			case "nil":
				return "", engine.ContinueAsNew(run, nil)
			}
			stranger = engine.ContinueAsNew(run, "done") // not returned
			return fmt.Sprint(in), nil
		}}
		var inBranch, inStep error
		ints := &engine.Workflow[int, string]{Name: "ints", Func: func(run *engine.Run, in int) (string, error) {
			switch in {
			case 0:
				_, inBranch = engine.Go(run, "b", func(run *engine.Run) (int, error) { return 0, engine.ContinueAsNew(run, 1) }).Get(run)
				_, inStep = engine.Step(run, "s", func(context.Context) (int, error) { return 0, engine.ContinueAsNew(run, 1) })
				return "", engine.ContinueAsNew(run, "1")
			case 1:
				return "", fmt.Errorf("enough: %w", errors.Join(errBroke, engine.ContinueAsNew(run, 2)))
			case 3:
				panic(engine.ContinueAsNew(run, 2))
			}
			return fmt.Sprint(in), nil
		}}
		p := boot(t, fresh(t), w, ints)
		for in, want := range map[string]string{"nil": "<nil>", "x": "x"} {
			if got := result(t, start(t, w, p, in, any(in))); got != want {
				t.Errorf("%s: %q", in, got)
			}
		}
		if i := describe(t, p, "x"); i.Life != 0 {
			t.Errorf("an error that was not returned: %+v", i)
		}
		for in, want := range map[string]string{"unencodable": engine.ErrInvalid.Error(), "lossy": engine.ErrInvalid.Error(), "stranger's": "must return this error"} {
			if _, err := outcome(start(t, w, p, in, any(in))); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", in, err)
			}
		}
		if _, err := outcome(start(t, ints, p, "0", 0)); err == nil || !strings.Contains(err.Error(), engine.ErrNotApplicable.Error()) {
			t.Errorf("with a string instead of an int: %v", err)
		}
		if !errors.Is(inBranch, engine.ErrNotApplicable) || inStep == nil || !strings.Contains(inStep.Error(), engine.ErrForeignRun.Error()) {
			t.Errorf("in a branch: %v; in a step: %v", inBranch, inStep)
		}
		if got := result(t, start(t, ints, p, "1", 1)); got != "2" {
			t.Errorf("wrapped: %q", got)
		}
		if _, err := outcome(start(t, ints, p, "3", 3)); err == nil {
			t.Error("a panic continues")
		}
	})
}

// CAN-11: a run of a Pinned workflow goes to the active deployment when it continues. A child stays
// with its parent, and a run whose start named a deployment stays there.
func TestPinnedRunContinuesOnTheActiveDeployment(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{fresh(t)}
		code := func(deployment string) (w *engine.Workflow[string, string], parent *engine.Workflow[string, string]) {
			w = &engine.Workflow[string, string]{Name: "w", Pinned: true, Func: func(run *engine.Run, before string) (string, error) {
				if _, err := yes.Receive(run); err != nil {
					return "", err
				}
				if before == "" {
					return "", engine.ContinueAsNew(run, deployment)
				}
				return before + ", " + deployment, nil
			}}
			return w, pinned("parent", func(run *engine.Run) (string, error) {
				return w.AsChild(engine.ChildOptions{ID: "child"}).Do(run, "")
			})
		}
		w, parent := code("blue")
		blue := boot(t, s, w, parent, on("blue"))
		activate(t, blue.Engine, "blue")
		time.Sleep(time.Second)
		start(t, w, blue, "moves", "")
		start(t, w.With(engine.StartOptions{Deployment: "blue"}), blue, "named", "")
		start(t, parent, blue, "parent", "")
		eventually(t, "the child is started", func() bool { _, err := blue.Describe(ctx, "child"); return err == nil })
		late := start(t, w, blue, "same", "")
		tell(t, yes, blue, "same", "1")
		inLife(t, blue, "same", 1)
		placed(t, blue, "same", "blue")

		w, parent = code("green")
		green := boot(t, s, w, parent, on("green"))
		activate(t, green.Engine, "green")
		for _, id := range []string{"moves", "named", "child"} {
			tell(t, yes, green, id, "1")
			inLife(t, green, id, 1)
			tell(t, yes, green, id, "2")
		}
		tell(t, yes, green, "same", "2")
		for id, want := range map[string]string{"moves": "blue, green", "named": "blue, blue", "child": "blue, blue"} {
			if got := result(t, w.Handle(green, id)); got != want {
				t.Errorf("%s was on %s, want %s", id, got, want)
			}
		}
		result(t, late)
		for _, problem := range integrity.Check(ctx, s, time.Time{}) {
			t.Error(problem)
		}
	})
}

// CAN-11: a run never continues by itself; a long history is logged, once.
func TestALongHistoryIsLogged(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var log lines
		w := flow("w", func(run *engine.Run) (string, error) {
			_, err := engine.Map(run, "all", 0, make([]int, 5100), func(run *engine.Run, _ int) (int, error) {
				for range 2 {
					if _, err := engine.Step(run, "s", func(context.Context) (int, error) { return 0, nil }); err != nil {
						return 0, err
					}
				}
				return 0, nil
			})
			return fmt.Sprint(run.HistoryLen() > 10_000), err
		})
		p := boot(t, fresh(t), w, log.logger())
		if got := result(t, start(t, w, p, "w", "")); got != "true" {
			t.Error("the history is too short to mean anything")
		}
		if n := log.count("history of a run is long"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		if i := describe(t, p, "w"); i.Life != 0 {
			t.Errorf("%+v", i)
		}
	})
}

// CAN-12: a run that continues all the time stays where it is in every list, also if it was resumed
// in an earlier life, and in a line of a queue it keeps its slot.
func TestListsOfARunThatContinues(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var fails atomic.Bool
		w := again("w", 5, func(run *engine.Run, life int) error {
			if err := run.SetLabel("life", "some"); err != nil {
				return err
			}
			if _, err := engine.Step(run, "s", func(context.Context) (int, error) {
				if fails.Load() {
					return 0, errBroke
				}
				return 0, nil
			}); err != nil {
				return err
			}
			_, err := yes.Receive(run)
			return err
		})
		q := engine.Queue{Name: "q", Concurrency: 1}
		p := boot(t, s, w, func(c *engine.Config) { c.Queues = []engine.Queue{q} })
		fails.Store(true)
		if _, err := outcome(start(t, w.With(engine.StartOptions{Queue: "q", Labels: map[string]string{"team": "blue"}}), p, "w", 0)); err == nil {
			t.Fatal("it has not failed")
		}
		fails.Store(false)
		time.Sleep(time.Hour)
		if err := p.Resume(ctx, "w", audit); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		rows := func() (all []string) {
			for _, family := range []string{"ix:", "ls:", "ll:", "slot:"} {
				all = append(all, entries(t, s, family)...)
			}
			return all
		}
		was := rows()
		tell(t, yes, p, "w", "0")
		inLife(t, p, "w", 1)
		start(t, w.With(engine.StartOptions{Queue: "q"}), p, "waits", 0)
		for life := range 3 {
			tell(t, yes, p, "w", fmt.Sprint(life+1))
			inLife(t, p, "w", life+2)
			time.Sleep(time.Second)
			for _, row := range was {
				if !slices.Contains(rows(), row) {
					t.Errorf("in life %d the entry %s is gone", life+2, row)
				}
			}
			for name, f := range map[string]engine.Filter{
				"type": {Workflow: "w", Status: checkpoint.StatusRunning}, "label": {Labels: map[string]string{"team": "blue", "life": "some"}}, "all": {IDPrefix: "w"},
			} {
				page, err := p.Page(ctx, f, engine.PageRequest{Limit: 10})
				if err != nil || !slices.ContainsFunc(page.Data, func(i engine.Info) bool { return i.ID == "w" && i.Life == life+2 && !i.LifeAt.IsZero() }) {
					t.Errorf("by %s: %+v, %v", name, page, err)
				}
			}
		}
		if i := describe(t, p, "waits"); i.Status != checkpoint.StatusPending {
			t.Errorf("the slot was given to another: %+v", i)
		}
	})
}

// hearsYes is a life that lasts until somebody says yes.
func hearsYes(run *engine.Run, _ int) error {
	_, err := yes.Receive(run)
	return err
}

// CAN-6: readers beside a continuation read one life.
func TestReadersBesideAContinuation(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		w := again("w", 100, hearsYes)
		p := boot(t, s, w)
		start(t, w, p, "w", 0)
		life := 0
		next := func() {
			life++
			tell(t, yes, p, "w", fmt.Sprint(life))
			waitFor(t, "the next life", func() bool { return describe(t, p, "w").Life == life })
		}
		next()
		for _, when := range []*between{{get: "wf:w"}, {get: "wf:w:in"}, {scan: "log:"}} {
			when.Storage, when.happens = s, next
			reader := made(t, when, w)
			var b bytes.Buffer
			if err := reader.Export(ctx, "w", &b); err != nil {
				t.Fatalf("%+v: %v", when, err)
			}
			reader.Close()
			var line struct {
				History, Life, Input int
				Number               uint64
			}
			d := json.NewDecoder(bytes.NewReader(b.Bytes()))
			if err := d.Decode(&line); err != nil || line.History != 3 || line.Life != line.Input {
				t.Errorf("%s%s: %+v, %v", when.get, when.scan, line, err)
			}
			if n := strings.Count(b.String(), `"continued"`); n != 1 {
				t.Errorf("%s%s: %d lives:\n%s", when.get, when.scan, n, b.String())
			}
			if err := p.Replay(ctx, &b); err != nil {
				t.Errorf("replay: %v", err)
			}
			when = &between{Storage: s, get: when.get, scan: when.scan, happens: next}
			reader = made(t, when, w)
			got, err := reader.Payloads(ctx, "w")
			if err != nil || string(got.Input.Data) != fmt.Sprint(got.Info.Life) {
				t.Errorf("%s%s: input %s of life %d, %v", when.get, when.scan, got.Input.Data, got.Info.Life, err)
			}
			reader.Close()
		}
		p.stop(t)
	})
}

// The history of a life that ends while somebody reads it is whole if it is short. If it is too long to be read before the
// first checkpoint is passed on, and is gone in the middle, it is not said to be damaged.
func TestHistoryOfALifeThatEndsMeanwhile(t *testing.T) {
	for _, steps := range []int{10, 20, 200, 500} {
		t.Run(sprint(steps), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := fresh(t)
				p, w := long(t, s, steps)
				reader := made(t, s, w)
				defer reader.Close()
				whole := len(historyOf(t, reader, "w"))
				n, last := 0, error(nil)
				for _, err := range reader.History(ctx, "w") {
					if n++; n == 1 {
						tell(t, yes, p, "w", "")
						inLife(t, p, "w", 1)
					}
					last = err
				}
				if short := steps < 256; short && (last != nil || n != whole) {
					t.Errorf("%d of %d checkpoints: %v", n, whole, last)
				} else if !short && (!errors.Is(last, engine.ErrBusy) || n < 2) {
					t.Errorf("after %d checkpoints: %v", n, last)
				}
				if cs := historyOf(t, reader, "w"); kinds(cs[:1])[0] != checkpoint.KindContinued {
					t.Errorf("%v", kinds(cs))
				}
			})
		})
	}
}

// The history of a life that ends between two reads of its checkpoints is read again, if it is short.
func TestHistoryIsReadAgain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		p, w := long(t, s, 20)
		ended := false
		reader := made(t, &between{Storage: s, scan: "log:", happens: func() {
			ended = true
			tell(t, yes, p, "w", "")
			inLife(t, p, "w", 1)
		}}, w)
		defer reader.Close()
		if cs := historyOf(t, reader, "w"); !ended || kinds(cs[:1])[0] != checkpoint.KindContinued {
			t.Errorf("a life has ended: %t; %v", ended, kinds(cs))
		}
	})
}

// What an engine cannot remove, because only a newer release knows what belongs to it, holds up nothing
// else that has expired, and costs no more than a look now and then.
func TestRemainsOfANewerReleaseHoldUpNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &metered{Storage: fresh(t)}
		w := flow("w", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		client := made(t, s, w)
		defer client.Close()
		start(t, w, client, "newer", "")
		needs(t, s, "newer")
		wf, err := journal.Load(ctx, s, "newer")
		if err != nil {
			t.Fatal(err)
		}
		const n = 4500
		for i := range n {
			put(t, s, keys.FormerLife(time.Now().Add(time.Duration(i)*time.Millisecond), "newer", wf.Generation), nil)
		}
		time.Sleep(time.Minute)
		put(t, s, keys.FormerLife(time.Now(), "gone", wf.Generation), nil)
		bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.N > 200*n { // it begins anew at once, for ever
				return storagetest.CrashBefore
			}
			return storagetest.None
		}), w)
		time.Sleep(10 * time.Minute)
		if left := entries(t, s, "exp:"); len(left) != n || strings.Contains(left[n-1], "gone") {
			t.Errorf("%d entries are left, the last is %s", len(left), left[len(left)-1])
		}
		began := s.gets.Load()
		time.Sleep(100 * time.Second)
		if gets := s.gets.Load() - began; gets > 12*n {
			t.Errorf("%d records were read in 100 polls, with %d entries that stay", gets, n)
		}
	})
}

// CAN-6: while an engine removes what earlier lives of a run have left, which may take long, it begins other runs.
func TestRemovalOfRemainsDoesNotHoldUpThePoll(t *testing.T) {
	virtual(t, func(t *testing.T) {
		other := flow("other", func(run *engine.Run) (string, error) { return "done", nil })
		w := flow("w", func(run *engine.Run) (string, error) { return "", nil })
		reached, free := make(chan struct{}), make(chan struct{})
		s := &slowScan{Storage: fresh(t), r: keys.ActivitiesOf("w"), then: func() { close(reached); <-free }}
		client := made(t, s, w, other)
		defer client.Close()
		start(t, w, client, "w", "")
		wf, err := journal.Load(ctx, s, "w")
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, keys.FormerLife(time.Now(), "w", wf.Generation), nil)
		time.Sleep(time.Second)
		boot(t, s, other)
		<-reached
		soonDone(t, start(t, other, client, "o", ""), time.Minute)
		close(free)
		eventually(t, "the entry is removed", func() bool { return len(entries(t, s, "exp:")) == 0 })
	})
}

// long is a run whose first life has so many steps, and that continues when it gets the signal yes. It returns when the run waits for that.
func long(t *testing.T, s storage.Storage, steps int) (p *process, w *engine.Workflow[int, int]) {
	t.Helper()
	w = again("w", 1, func(run *engine.Run, life int) error {
		if life == 1 {
			return run.Sleep(time.Hour)
		}
		for range steps {
			if _, err := engine.Step(run, "s", func(context.Context) (int, error) { return 0, nil }); err != nil {
				return err
			}
		}
		_, err := yes.Receive(run)
		return err
	})
	p = boot(t, s, w)
	start(t, w, p, "w", 0)
	eventually(t, "it waits for a signal", func() bool { return slices.Contains(describe(t, p, "w").Waiting, "receive yes") })
	return p, w
}

// VER-9, VER-10, CAN-12: a rehearsal and a sample that meet a run as it continues as new read its next
// life, as History and Export do, and go on with the others.
func TestRehearsalBesideAContinuation(t *testing.T) {
	for name, read := range map[string]func(e *engine.Engine) (ids []string, err error){
		"Rehearse": func(e *engine.Engine) (ids []string, err error) {
			for r, err := range e.Rehearse(ctx, engine.Filter{}) {
				if err = errors.Join(err, r.Err); err != nil {
					return ids, err
				}
				ids = append(ids, r.ID)
			}
			return ids, nil
		},
		"ExportSample": func(e *engine.Engine) (ids []string, err error) {
			err = e.ExportSample(ctx, engine.Filter{}, 9, func(i engine.Info) (io.WriteCloser, error) {
				ids = append(ids, i.ID)
				return sink{}, nil
			})
			return ids, err
		},
		"History": func(e *engine.Engine) (ids []string, err error) {
			for _, err := range e.History(ctx, "w") {
				if err != nil {
					return nil, err
				}
			}
			return []string{"w", "before"}, nil
		},
		"Export": func(e *engine.Engine) (ids []string, err error) {
			return []string{"w", "before"}, e.Export(ctx, "w", io.Discard)
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := fresh(t)
				before := flow("before", func(run *engine.Run) (string, error) { return yes.Receive(run) })
				client := made(t, s, before)
				defer client.Close()
				start(t, before, client, "before", "") // listed behind it
				time.Sleep(time.Second)
				p, w := long(t, s, 300)
				continues := func() {
					tell(t, yes, p, "w", "")
					inLife(t, p, "w", 1)
				}
				// The last read of the record before the history is read.
				reads := map[string]int{"Rehearse": 3, "ExportSample": 3, "History": 1, "Export": 2}[name]
				reader := made(t, &afterwards{Storage: s, key: "wf:w", reads: reads, happens: continues}, w, before)
				defer reader.Close()
				ids, err := read(reader)
				if err != nil || !slices.Equal(ids, []string{"w", "before"}) {
					t.Errorf("%v, %v", ids, err)
				}
				if got := describe(t, p, "w").Life; got != 1 {
					t.Errorf("it is in life %d: nothing was tested", got)
				}
			})
		})
	}
}

// An afterwards has something happen after a record was read for the n-th time.
type afterwards struct {
	storage.Storage
	key     string
	reads   int
	happens func()
}

func (a *afterwards) Unwrap() storage.Storage { return a.Storage }

func (a *afterwards) Get(ctx context.Context, key []byte) ([]byte, error) {
	v, err := a.Storage.Get(ctx, key)
	if string(key) == a.key {
		if a.reads--; a.reads == 0 {
			a.happens()
		}
	}
	return v, err
}

// A sink is written to in vain.
type sink struct{}

func (sink) Write(b []byte) (int, error) { return len(b), nil }
func (sink) Close() error                { return nil }

// A replay says that a function that returned, or failed, continues as new now.
func TestReplayOfAnEndThatContinuesNow(t *testing.T) {
	virtual(t, func(t *testing.T) {
		was := flow("w", func(run *engine.Run) (string, error) { return "", errBroke })
		is := flow("w", func(run *engine.Run) (string, error) { return "", engine.ContinueAsNew(run, "") })
		p := boot(t, fresh(t), was)
		_, _ = outcome(start(t, was, p, "w", ""))
		var b bytes.Buffer
		if err := p.Export(ctx, "w", &b); err != nil {
			t.Fatal(err)
		}
		changed := made(t, fresh(t), is)
		defer changed.Close()
		if err := changed.Replay(ctx, &b); err == nil || !strings.Contains(err.Error(), "is now to continue as new") {
			t.Error(err)
		}
	})
}

// CAN-4: the lease of an engine ends while it commits the next life of a run. Another engine executes that, and who waits for the
// result at the first one gets it.
func TestResultOfALifeThatAnotherEngineBegins(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		wf := flow("wf", func(run *engine.Run) (string, error) {
			v, err := yes.Receive(run)
			if err == nil && v == "again" {
				err = engine.ContinueAsNew(run, "")
			}
			return v, err
		})
		var armed atomic.Bool
		var until atomic.Int64 // when the store lets something through, in microseconds
		stall := func() { time.Sleep(time.Until(time.UnixMicro(until.Load()))) }
		p := boot(t, &turnstile{&hooked{Storage: sharedStore{s}, afterCommit: func(b storage.Batch) error {
			if touches(b, "wf:o:in") && armed.Swap(false) {
				until.Store(time.Now().Add(time.Minute).UnixMicro())
				stall()
			}
			return nil
		}}, stall}, wf, leases)
		h := start(t, wf, p, "o", "")
		time.Sleep(time.Second)
		armed.Store(true)
		got := make(chan string, 1)
		go func() {
			soon, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			v, err := h.Result(soon)
			got <- fmt.Sprint(v, " ", err)
		}()
		time.Sleep(time.Second)
		other := boot(t, sharedStore{s}, wf, leases)
		send(t, yes, other, "o", "again", "")
		time.Sleep(30 * time.Second)
		send(t, yes, other, "o", "done", "")
		equal(t, "result", <-got, "done <nil>")
		equal(t, "life", describe(t, other, "o").Life, 1)
		p.kill()
		other.kill()
	})
}
