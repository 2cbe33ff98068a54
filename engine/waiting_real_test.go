package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/storage/storagetest"
)

// A clientCall is a call of an engine, and what its error has to say.
type clientCall struct {
	what    string // InterruptedError.Call
	unknown bool
	ended   bool // by its context; else at once
	do      func(ctx context.Context) error
}

// fails makes calls at the same time and checks their errors: each ends with its context,
// or at once, and tells the cause.
func fails(t *testing.T, cause string, calls ...clientCall) {
	t.Helper()
	var wg sync.WaitGroup
	stood := torture.Standstill(t)
	for _, c := range calls {
		wg.Go(func() {
			for again := 0; !failed(t, cause, c, stood); again++ {
				if again == 3 {
					t.Errorf("%s: the machine always stands still", c.what)
					return
				}
			}
		})
	}
	wg.Wait()
}

// failed makes a call and checks its error. It returns false if the call has met nothing, because the machine stood
// still: then it has to be made again.
func failed(t *testing.T, cause string, c clientCall, stood func() time.Duration) bool {
	limit := time.Minute // nothing waits for it
	if c.ended {
		limit = 5 * time.Second // until then it has met the cause, on a slow machine too
	}
	before := stood()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	err := c.do(ctx)
	took := time.Since(began)
	paused := stood() - before
	i, ok := errors.AsType[*engine.InterruptedError](err)
	switch {
	case !ok:
		t.Errorf("%s: %v, want an InterruptedError", c.what, err)
	case c.ended && i.Last == nil && paused > time.Second:
		t.Logf("%s: %v; again, because the machine stood still for %v", c.what, err, paused)
		return false
	case i.Call != c.what || i.Unknown != c.unknown || i.Last == nil || !strings.Contains(i.Last.Error(), cause) || !errors.Is(err, i.Last):
		t.Errorf("%s: %v; want the cause %q, and unknown: %v", c.what, err, cause, c.unknown)
	case c.ended != errors.Is(err, context.DeadlineExceeded) || took > limit+4*time.Second+paused || c.ended != (took >= limit-50*time.Millisecond):
		t.Errorf("%s: %v after %v, of which the machine stood still for %v; ended by its context: %v", c.what, err, took, paused, c.ended)
	}
	return true
}

// A stricken engine is on a store that is going to fail. It has workflows that sleep, one
// that receives, and calls for them.
type stricken struct {
	*process
	sleeps, receives *engine.Workflow[string, string]
	h                *engine.Handle[string]
}

func strickenOn(t *testing.T, s storage.Storage) *stricken {
	x := &stricken{
		sleeps:   flow("sleeps", func(run *engine.Run) (string, error) { return "", run.Sleep(1000 * time.Hour) }),
		receives: receiving(2),
	}
	x.process = boot(t, s, x.sleeps, x.receives)
	start(t, x.sleeps, x, "asleep", "")
	start(t, x.sleeps, x, "doomed", "")
	x.h = start(t, x.receives, x, "receiver", "")
	send(t, approved, x, "receiver", "a", "a")
	eventually(t, "it rests in its second receive", func() bool {
		return slices.Contains(kinds(historyOf(t, x.Engine, "receiver")), checkpoint.KindReceived) && engine.Receives(x.Engine, "receiver")
	})
	return x
}

func (x *stricken) send(to string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := approved.Send(ctx, x, to, "b", &signal.Options{ID: "b"})
		return err
	}
}

func (x *stricken) cancel(ctx context.Context) error { return x.Cancel(ctx, "doomed", engine.Actor{}) }

func (x *stricken) start(ctx context.Context) error {
	_, err := x.sleeps.Start(ctx, x, "new", "")
	return err
}

// mended repeats the calls, with the same ids: each has happened once.
func (x *stricken) mended(t *testing.T) {
	t.Helper()
	for _, do := range []func(context.Context) error{x.send("receiver"), x.send("asleep"), x.cancel, x.start} {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		if err := do(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	}
	if got := result(t, x.h); got != "ab" {
		t.Errorf("received %q, want ab", got)
	}
	n := 0
	for _, err := range x.Signals(ctx, "asleep") {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 1 {
		t.Errorf("%d signals were accepted, want 1", n)
	}
	if err := outcomeOf(x.sleeps.Handle(x, "doomed")); !errors.Is(err, engine.ErrCancelled) {
		t.Errorf("doomed: %v, want ErrCancelled", err)
	}
	describe(t, x, "new")
}

func outcomeOf(h *engine.Handle[string]) error { _, err := outcome(h); return err }

// While another connection holds the write lock of an SQLite database, calls end with their
// contexts, and say that it is locked.
func TestErrorsOfALockedDatabase(t *testing.T) {
	torture.Slow(t)
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			s, err := sqlite.Open(path, &sqlite.Options{Shared: shared})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			x := strickenOn(t, s)
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			other, err := db.Conn(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			if _, err := other.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
				t.Fatal(err)
			}
			fails(t, "database is locked",
				clientCall{`signal "approved" to workflow "asleep"`, false, true, x.send("asleep")},
				clientCall{`signal "approved" to workflow "receiver"`, true, true, x.send("receiver")}, // the run commits it
				clientCall{`cancel of workflow "doomed"`, false, true, x.cancel},
				clientCall{`start of workflow "new"`, false, true, x.start},
			)
			if _, err := other.ExecContext(ctx, "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			x.mended(t)
		})
	}
}

// On a disk without room signals are sent until one is not accepted. Its error says why.
// When there is room again the same engine goes on, and what it acknowledged is there.
func TestErrorsOfAFullDisk(t *testing.T) {
	torture.Slow(t)
	if torture.Alone(t) {
		return
	}
	for name, open := range map[string]func(path string) (storage.Storage, error){
		"sqlite": func(path string) (storage.Storage, error) { return stored(sqlite.Open(path, nil)) },
		"bolt":   func(path string) (storage.Storage, error) { return stored(bolt.Open(path, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := open(filepath.Join(t.TempDir(), "store"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			x := strickenOn(t, s)
			start(t, x.sleeps, x, "box", "")
			accepted := 0
			put := func() error {
				for slow := 0; accepted < 1000; {
					ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
					_, err := approved.Send(ctx, x, "box", strings.Repeat("x", 50_000), &signal.Options{ID: fmt.Sprint(accepted)})
					cancel()
					i, ok := errors.AsType[*engine.InterruptedError](err)
					switch {
					case err == nil:
						accepted++
					case ok && i.Last == nil && slow < 10: // nothing has failed: the disk is slow
						slow++
					default:
						return err
					}
				}
				return nil
			}
			torture.LimitFiles(t, 1<<20)
			err = put()
			i, ok := errors.AsType[*engine.InterruptedError](err)
			if !ok || i.Call != `signal "approved" to workflow "box"` || !i.Unknown || i.Last == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(i.Last.Error(), "commit") || accepted == 0 {
				t.Fatalf("%d accepted, then: %v", accepted, err)
			}
			fails(t, causeOf(i.Last),
				clientCall{`signal "approved" to workflow "asleep"`, true, true, func(ctx context.Context) error {
					_, err := approved.Send(ctx, x, "asleep", strings.Repeat("x", 500_000), nil) // there is no place for this, whatever became free
					return err
				}},
			)
			torture.LimitFiles(t, 1<<40)
			again, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			if _, err := approved.Send(again, x, "box", strings.Repeat("x", 50_000), &signal.Options{ID: fmt.Sprint(accepted)}); err != nil {
				t.Fatal(err)
			}
			n := 0
			for w, err := range x.Signals(ctx, "box") {
				if err != nil {
					t.Fatal(err)
				}
				if w.ID != fmt.Sprint(n) {
					t.Fatalf("signal %d of %d is %q", n, accepted+1, w.ID)
				}
				n++
			}
			if n != accepted+1 {
				t.Errorf("%d signals are there, and %d were acknowledged", n, accepted+1)
			}
			t.Logf("%d accepted, then: %v", accepted, i)
		})
	}
}

// causeOf is the last part of an error, without what it is about.
func causeOf(err error) string {
	s := err.Error()
	return s[strings.LastIndex(s, ": ")+2:]
}

// While the server is gone a call that has to read first fails at once; one that has
// something to commit tries until its context ends. When the server is back the same
// engine goes on.
func TestErrorsOfAServerThatIsGone(t *testing.T) {
	server := pgtest.Start(t, "fsync=off")
	s, err := postgres.Open(ctx, server.URL("postgres"), &postgres.Options{FsyncOff: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	x := strickenOn(t, s)
	client := made(t, s) // it drives nothing, and so has to read
	server.Kill()
	fails(t, "connection refused",
		clientCall{`signal "approved" to workflow "asleep"`, false, false, func(ctx context.Context) error {
			_, err := approved.Send(ctx, client, "asleep", "b", &signal.Options{ID: "b"})
			return err
		}},
		clientCall{`signal "approved" to workflow "receiver"`, true, true, x.send("receiver")},
		clientCall{`cancel of workflow "doomed"`, false, false, x.cancel},
		clientCall{`start of workflow "new"`, true, true, x.start},
		clientCall{`result of workflow "receiver"`, false, false, func(ctx context.Context) error {
			return client.Result(ctx, "receiver", "", nil)
		}},
		clientCall{`description of workflow "receiver"`, false, false, func(ctx context.Context) error {
			_, err := client.Describe(ctx, "receiver")
			return err
		}},
	)
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	x.mended(t)
}

// A call of which something may have been written reads until it is answered: an outage
// of the store that begins with its commit does not end it before its context.
func TestCallOfUnknownOutcomeOutlastsAnOutage(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var armed bool
		var began time.Time // the outage
		s := storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
			switch {
			case armed && c.Method == "Commit":
				armed, began = false, time.Now()
				return storagetest.ErrorAfter
			case time.Since(began) < 3*time.Second:
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		wf := receiving(1)
		e := made(t, s, wf)
		for what, call := range map[string]func(ctx context.Context, id string) error{
			"send": func(ctx context.Context, id string) error {
				_, err := approved.Send(ctx, e, id, "v", &signal.Options{ID: "v"})
				return err
			},
			"cancel": func(ctx context.Context, id string) error { return e.Cancel(ctx, id, engine.Actor{}) },
			"start":  func(ctx context.Context, id string) error { _, err := wf.Start(ctx, e, id+" too", ""); return err },
		} {
			for limit, want := range map[time.Duration]error{time.Second: context.DeadlineExceeded, time.Minute: nil} {
				id := fmt.Sprint(what, limit)
				start(t, wf, e, id, "")
				armed = true
				ctx, cancel := context.WithTimeout(ctx, limit)
				err := call(ctx, id)
				cancel()
				i, ok := errors.AsType[*engine.InterruptedError](err)
				if !errors.Is(err, want) || want != nil && (!ok || !i.Unknown || !errors.Is(err, storagetest.ErrInjected)) {
					t.Errorf("%s of %v: %v, want %v", what, limit, err, want)
				}
				time.Sleep(3 * time.Second)
			}
		}
	})
}

// An unread store answers no reads until the context of one has ended.
type unread struct {
	storage.Storage
	answers atomic.Bool
}

func (s *unread) Unwrap() storage.Storage { return s.Storage }

func (s *unread) Get(ctx context.Context, key []byte) ([]byte, error) {
	if !s.answers.Load() {
		<-ctx.Done()
		s.answers.Store(true) // before anybody else is the leader
		return nil, ctx.Err()
	}
	return s.Storage.Get(ctx, key)
}

// Signals that share a commit do not share a context: when that of the first ends while
// it reads for all of them, the others go on.
func TestContextOfALeaderIsNotThatOfTheOthers(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &unread{Storage: fresh(t)}
		s.answers.Store(true)
		armed := false
		f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if armed && c.Method == "Commit" {
				armed = false
				time.Sleep(time.Second / 2) // the second joins
				s.answers.Store(false)
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		wf := receiving(1)
		e := made(t, f, wf)
		start(t, wf, e, "o", "")
		armed = true
		errs := []chan error{make(chan error, 1), make(chan error, 1)} // both end at almost the same time
		for n, limit := range []time.Duration{2 * time.Second, time.Minute} {
			go func() {
				ctx, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				_, err := approved.Send(ctx, e, "o", "v", nil)
				errs[n] <- err
			}()
			time.Sleep(time.Second / 4)
		}
		if i, ok := errors.AsType[*engine.InterruptedError](<-errs[0]); !ok || !i.Unknown || !errors.Is(i, storagetest.ErrInjected) {
			t.Errorf("the first: %v, want an InterruptedError of unknown outcome, and its cause", i)
		}
		if err := <-errs[1]; err != nil {
			t.Errorf("the second: %v", err)
		}
	})
}
