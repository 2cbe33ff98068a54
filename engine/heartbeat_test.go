package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/reconcile"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// A page is how far an import has come.
type page struct {
	Attempt, Row int
}

// An import tells a row each second. Its first attempt ends after some, as the test
// wants; the others return where they begin.
type importing struct {
	mu    sync.Mutex
	first func(ctx context.Context, row int) (end bool, err error)
	began []page // what each attempt but the first found
	asked []page // what the verifier found
	none  int    // attempts that found nothing
}

func (i *importing) run(ctx context.Context, _ string) (page, error) {
	n := activity.InfoFrom(ctx).Attempt
	p, ok := activity.Progress[page](ctx)
	i.mu.Lock()
	if ok {
		i.began = append(i.began, p)
	} else {
		i.none++
	}
	i.mu.Unlock()
	if ok {
		return p, nil
	}
	for row := 1; ; row++ {
		cause := activity.Heartbeat(ctx, page{n, row})
		if cause != nil {
			return page{}, cause
		}
		if end, err := i.first(ctx, row); end {
			return page{n, row}, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (i *importing) verify(ctx context.Context, _ string) (activity.Verification[page], error) {
	if err := activity.Heartbeat(ctx, page{99, 99}); err != nil { // tells nothing
		return activity.Indeterminate[page](err.Error()), nil
	}
	p, ok := activity.Progress[page](ctx)
	if !ok {
		return activity.Indeterminate[page]("no progress"), nil
	}
	i.mu.Lock()
	i.asked = append(i.asked, p)
	i.mu.Unlock()
	return activity.NotCompleted[page](), nil
}

func (i *importing) activity(verified bool) *activity.Activity[string, page] {
	a := &activity.Activity[string, page]{Name: "import", Run: i.run, Timeout: time.Hour}
	if verified {
		a.IdempotencyKey = func(string) string { return "k" }
		a.Verify, a.VerifyFences = i.verify, true
	}
	return a
}

// What an attempt told is found by the next one, and by the verifier: all of it if
// the attempt came to an end, and but for the last seconds if its process died.
func TestProgressIsFoundByTheNextAttempt(t *testing.T) {
	const rows = 12
	for _, how := range []string{"fails", "panics", "times out", "is stopped", "is killed"} {
		for _, verified := range []bool{false, true} {
			name := how
			if verified {
				name += ", verified"
			}
			t.Run(name, func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					s := fresh(t)
					reached := make(chan bool, 1)
					i := &importing{first: func(ctx context.Context, row int) (bool, error) {
						switch {
						case row < rows:
							return false, nil
						case how == "fails":
							return true, errBroke
						case how == "panics":
							panic("broke")
						}
						reached <- true
						<-ctx.Done()
						return true, context.Cause(ctx)
					}}
					a := i.activity(verified)
					if how == "times out" {
						a.Timeout = 20 * time.Second
					}
					wf := &engine.Workflow[string, page]{Name: "w", Func: func(run *engine.Run, in string) (page, error) { return a.Do(run, in) }}
					p := boot(t, s, wf)
					start(t, wf, p, "o", "")
					switch how {
					case "is stopped":
						<-reached
						p.close()
						p = boot(t, s, wf)
					case "is killed":
						<-reached
						p.kill()
						p = boot(t, s, wf)
					}
					got := result(t, wf.Handle(p, "o"))
					least := rows
					if how == "is killed" {
						least = rows - 6 // a second for the write
					}
					if got.Attempt != 1 || got.Row < least || got.Row > rows {
						t.Errorf("the second attempt found %+v, want row %d to %d of the first", got, least, rows)
					}
					if i.none != 1 || len(i.began) != 1 {
						t.Errorf("%d attempts found nothing and %d something, want 1 and 1", i.none, len(i.began))
					}
					if verified && (len(i.asked) != 1 || i.asked[0] != got) {
						t.Errorf("the verifier found %v, want %v", i.asked, got)
					}
				})
			})
		}
	}
}

// Likewise on stores in files. On PostgreSQL it is among those of TestOnPostgres.
func TestProgressInFiles(t *testing.T) {
	defer func(was func(testing.TB) storage.Storage) { fresh = was }(fresh)
	for _, adapter := range []string{"sqlite", "bolt"} {
		fresh = func(t testing.TB) storage.Storage {
			s := sweepStores[adapter].Open(t)
			t.Cleanup(func() { s.Close() })
			return s
		}
		t.Run(adapter, TestProgressIsFoundByTheNextAttempt)
	}
}

// Progress is written now and then, however often it is told, in no checkpoint, and
// not at all by what is quick.
func TestProgressIsThrottled(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var beats atomic.Int32
		f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" && touches(c.Batch, "beat:") {
				beats.Add(1)
			}
			return storagetest.None
		})
		told := 0
		a := &activity.Activity[time.Duration, int]{Name: "work", Timeout: time.Hour, Run: func(ctx context.Context, d time.Duration) (int, error) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if err := activity.Heartbeat(ctx, told); err != nil {
					return 0, err
				}
				told++
			}
			return told, nil
		}}
		wf := &engine.Workflow[time.Duration, int]{Name: "w", Func: func(run *engine.Run, d time.Duration) (int, error) { return a.Do(run, d) }}
		p := bootOn(t, f, wf)
		result(t, start(t, wf, p, "quick", 3*time.Second))
		if n := beats.Load(); n != 0 {
			t.Errorf("%d writes of an activity of three seconds, want none", n)
		}
		quick := len(historyOf(t, p.Engine, "quick"))
		result(t, start(t, wf, p, "long", 10*time.Minute))
		if n := beats.Load(); n < 100 || n > 120 {
			t.Errorf("%d writes in ten minutes, want one each five seconds", n)
		}
		if got := len(historyOf(t, p.Engine, "long")); got != quick {
			t.Errorf("a history of %d checkpoints, want %d", got, quick)
		}
		if told < 50_000 {
			t.Errorf("it told %d times only", told)
		}
	})
}

// AC10: that progress cannot be written does not stop the attempt, and it is written
// when the store is back; also where the outcome of a write is unknown.
func TestProgressOutlastsAnOutage(t *testing.T) {
	for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter, storagetest.CancelMiddle} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			var down atomic.Bool
			f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				if down.Load() && c.Method == "Commit" && touches(c.Batch, "beat:") {
					return fault
				}
				return storagetest.None
			})
			i := &importing{first: func(_ context.Context, row int) (bool, error) {
				down.Store(row > 10 && row < 100 || row == 130)
				if row == 130 { // it comes back while the last words are spoken
					time.AfterFunc(time.Second, func() { down.Store(false) })
				}
				return row == 130, errBroke
			}}
			a := i.activity(false)
			wf := &engine.Workflow[string, page]{Name: "w", Func: func(run *engine.Run, in string) (page, error) { return a.Do(run, in) }}
			p := bootOn(t, f, wf)
			h := start(t, wf, p, "o", "")
			time.Sleep(125 * time.Second)
			b, err := reconcile.ReadBeat(ctx, s, "o", "1")
			if err != nil || b.Attempt != 1 || time.Since(time.UnixMicro(b.At)) > 6*time.Second {
				t.Errorf("fault %d: after the outage, progress is %+v, %v", fault, b, err)
			}
			if got, want := result(t, h), (page{1, 130}); got != want {
				t.Errorf("fault %d: the second attempt found %v, want %v", fault, got, want)
			}
		})
	}
}

// each write carries the fence. Who writes under a record that somebody else has
// changed looks whether the run is his still: if so, it is written under the new one;
// if not, nothing is, and the attempt is told to stop.
func TestProgressIsFenced(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(wf *journal.Workflow)
		fenced bool
	}{
		{"a request", func(wf *journal.Workflow) { wf.State++ }, false},
		{"another owner", func(wf *journal.Workflow) { wf.Owner = "somebody" }, true},
		{"another claim", func(wf *journal.Workflow) { wf.Claim++ }, true},
		{"another life", func(wf *journal.Workflow) { wf.Generation = "ANOTHER" }, true},
		{"the end", func(wf *journal.Workflow) { wf.Status = checkpoint.StatusFailed }, true},
	} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			causes := make(chan error, 1)
			a := &activity.Activity[string, int]{Name: "work", Timeout: time.Hour, Run: func(ctx context.Context, _ string) (int, error) {
				for row := 0; ; row++ {
					if err := activity.Heartbeat(ctx, row); err != nil || row == 100 {
						causes <- err
						return 0, err
					}
					select {
					case <-ctx.Done():
					case <-time.After(time.Second):
					}
				}
			}}
			wf := doing(a)
			p := boot(t, s, wf)
			start(t, wf, p, "o", "")
			time.Sleep(12 * time.Second)
			before, err := reconcile.ReadBeat(ctx, s, "o", "1")
			if err != nil || before.Attempt != 1 {
				t.Fatalf("progress after 12 s: %+v, %v", before, err)
			}
			record, changed := rewrite(t, s, "o", c.change)
			lost := activity.ErrLeaseLost
			if changed.Status.Terminal() || changed.Generation != record.Generation { // it has ended, or was removed
				lost = activity.ErrTerminated
			}
			begun := time.Now()
			cause := <-causes
			if took := time.Since(begun); c.fenced && (cause != lost || took > 10*time.Second) || !c.fenced && cause != nil {
				t.Errorf("%s: told %v after %v", c.name, cause, took)
			}
			synctest.Wait()
			after, err := reconcile.ReadBeat(ctx, s, "o", "1")
			if err != nil || (after.At != before.At) == c.fenced {
				t.Errorf("%s: progress of %v became one of %v, %v", c.name, before.At, after.At, err)
			}
		})
	}
}

// What cannot be told is refused, what cannot be read is none, and so is that of
// another operation, and of another generation of the id.
func TestProgressThatIsNone(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var log lines
		var saw []string
		a := &activity.Activity[string, int]{Name: "work", Retry: activity.Retry{Backoff: time.Millisecond}, Run: func(ctx context.Context, _ string) (int, error) {
			n, ok := activity.Progress[int](ctx)
			saw = append(saw, sprint(n, ok))
			if activity.InfoFrom(ctx).Attempt > 1 {
				_, ok := activity.Progress[[]string](ctx)
				saw = append(saw, sprint(ok))
				return 0, nil
			}
			if err := activity.Heartbeat(ctx, 7); err != nil {
				t.Error(err)
			}
			if n, ok := activity.Progress[int](ctx); ok {
				t.Errorf("its own progress is that of an earlier attempt: %d", n)
			}
			if err := activity.Heartbeat(ctx, make(chan int)); err == nil {
				t.Error("a channel is progress")
			}
			if err := activity.Heartbeat(ctx, strings.Repeat("x", engine.MaxProgress)); err == nil {
				t.Error("64 KiB with quotes around them are told")
			}
			return 0, errBroke
		}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			for range 2 {
				if _, err := a.Do(run, ""); err != nil {
					return "", err
				}
			}
			return engine.Step(run, "step", func(ctx context.Context) (string, error) {
				_, ok := activity.Progress[int](ctx)
				return sprint(ok), activity.Heartbeat(ctx, 1)
			})
		})
		p := boot(t, s, wf, log.logger())
		for range 2 {
			if got := result(t, start(t, wf, p, "o", "")); got != "false" {
				t.Errorf("a step finds progress: %s", got)
			}
			if err := p.Purge(ctx, "o", audit); err != nil {
				t.Fatal(err)
			}
			if left := entries(t, s, "beat:"); len(left) > 0 {
				t.Errorf("purged, and there is %q", left)
			}
		}
		const want = "0 false,7 true,false,0 false,7 true,false"
		if got := strings.Join(saw, ","); got != want+","+want {
			t.Errorf("attempts found\n%s, want twice\n%s", got, want)
		}
		if n := log.count("could not be read"); n != 4 {
			t.Errorf("%d lines about progress of another type, want 4", n)
		}
	})
}

// Progress that an earlier generation left, or that is damaged, is none, and the latter
// is left as it is.
func TestProgressLeftBehind(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var log lines
		a := &activity.Activity[string, int]{Name: "work", Run: func(ctx context.Context, _ string) (int, error) {
			if n, ok := activity.Progress[int](ctx); ok {
				return n, nil
			}
			if activity.InfoFrom(ctx).Attempt == 1 {
				return 0, errors.Join(errBroke, activity.Heartbeat(ctx, 2))
			}
			return -1, nil
		}}
		wf := doing(a)
		old, err := reconcile.ReadBeat(ctx, s, "old", "1")
		if err != nil {
			t.Fatal(err)
		}
		old.Generation, old.Activity, old.Attempt, old.Progress = "EARLIER", "work", 9, []byte("1")
		_, op, err := old.Seal()
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, op.Key, op.Value)
		damage := []byte("damage")
		put(t, s, keys.Beat("damaged", "1"), damage)
		p := boot(t, s, wf, log.logger())
		if got := result(t, start(t, wf, p, "old", "")); got != "2" {
			t.Errorf("beside the progress of an earlier life: %s, want its own", got)
		}
		if got := result(t, start(t, wf, p, "damaged", "")); got != "-1" {
			t.Errorf("beside damaged progress: %s, want none", got)
		}
		if got := get(t, s, keys.Beat("damaged", "1")); string(got) != string(damage) {
			t.Errorf("damage became %q", got)
		}
		if r, w := log.count("could not be read"), log.count("could not be written"); r != 2 || w != 1 {
			t.Errorf("%d lines about reading it and %d about writing, want 2 and 1", r, w)
		}
	})
}

// An attempt that was given up tells nothing any more, whoever goes on telling.
func TestHeartbeatAfterTheEnd(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		late := make(chan error, 1)
		a := &activity.Activity[string, int]{Name: "work", Run: func(ctx context.Context, _ string) (int, error) {
			if err := activity.Heartbeat(ctx, 1); err != nil {
				t.Error(err)
			}
			go func() {
				time.Sleep(time.Minute)
				late <- activity.Heartbeat(ctx, 2)
			}()
			return 1, nil
		}}
		wf := doing(a)
		p := boot(t, s, wf)
		result(t, start(t, wf, p, "o", ""))
		if err := <-late; !errors.Is(err, context.Canceled) {
			t.Errorf("after the end: %v, want that it is", err)
		}
		time.Sleep(time.Minute)
		if got := entries(t, s, "beat:"); len(got) > 0 {
			t.Errorf("it is written: %q", got)
		}
	})
}
