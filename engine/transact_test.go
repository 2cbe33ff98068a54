package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/sqlite"
)

// lossy is a store whose first transactions end without an answer.
type lossy struct {
	*sqlite.Store
	lose    int  // so many
	applied bool // after they were committed, or else before
}

var errLost = errors.New("connection lost")

func (l *lossy) Unwrap() storage.Storage { return l.Store }

func (l *lossy) Transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	if l.lose == 0 {
		return l.Store.Transact(ctx, f)
	}
	l.lose--
	err := l.Store.Transact(ctx, func(ctx context.Context) (storage.Batch, error) {
		b, err := f(ctx)
		if err == nil && !l.applied {
			err = errLost
		}
		return b, err
	})
	if err == nil {
		err = errLost
	}
	return err
}

// Interleaving 6: what a step writes in the transaction of its checkpoint is there exactly once
// if the step has succeeded, and not at all if it has failed: also where the
// answer to COMMIT is lost, before or after it was applied.
func TestTransactHappensOnce(t *testing.T) {
	for _, c := range []struct {
		name    string
		lose    int
		applied bool
		end     func() error
		rows    int
	}{
		{name: "undisturbed", rows: 1},
		{name: "applied and not answered", lose: 1, applied: true, rows: 1},
		{name: "neither applied nor answered", lose: 3, rows: 1},
		{name: "error", end: func() error { return errors.New("no") }},
		{name: "panic", end: func() error { panic("no") }},
		{name: "goexit", end: func() error { runtime.Goexit(); return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "host.db")
			inner, err := sqlite.Open(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer inner.Close()
			store := &lossy{inner, c.lose, c.applied}
			wf := &engine.Workflow[int, string]{Name: "bookings", Func: func(run *engine.Run, n int) (string, error) {
				seat, err := sqlite.Transact(run, "book", func(ctx context.Context, tx *sql.Tx) (int, error) {
					if id := activity.InfoFrom(ctx).WorkflowID; id != "b" {
						return 0, fmt.Errorf("info of %q", id)
					}
					if _, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS seats (n INTEGER)"); err != nil {
						return 0, err
					}
					if _, err := tx.ExecContext(ctx, "INSERT INTO seats VALUES (?)", n); err != nil {
						return 0, err
					}
					if c.end != nil {
						return 0, c.end()
					}
					return n, nil
				})
				return fmt.Sprint("seat ", seat, " ", err != nil), run.Sleep(0)
			}}
			eng, stop := running(t, store, wf)
			defer stop()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			h, err := wf.Start(ctx, eng, "b", 7)
			if err != nil {
				t.Fatal(err)
			}
			want := "seat 7 false"
			if c.end != nil {
				want = "seat 0 true"
			}
			if got, err := h.Result(ctx); got != want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
			host, err := sql.Open("sqlite", "file:"+path)
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			rows := 0
			if err := host.QueryRow("SELECT count(*) FROM seats").Scan(&rows); err != nil && c.rows > 0 || rows != c.rows {
				t.Errorf("rows: got %d, %v, want %d", rows, err, c.rows)
			}
		})
	}
}

// What a workflow gets of a transaction is what is recorded of it, and not what its
// function has left: a replay has nothing else.
func TestTransactGivesWhatIsRecorded(t *testing.T) {
	type seat struct {
		Number int
		Tags   map[string]int
		Memo   string `json:"-"`
	}
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "host.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	wf := &engine.Workflow[int, string]{Name: "w", Func: func(run *engine.Run, n int) (string, error) {
		tags := map[string]int{"kept": 1}
		got, err := sqlite.Transact(run, "book", func(context.Context, *sql.Tx) (seat, error) {
			return seat{n, tags, "not encoded"}, nil
		})
		tags["later"] = 2
		return fmt.Sprint(got), err
	}}
	eng, stop := running(t, store, wf)
	defer stop()
	h, err := wf.Start(t.Context(), eng, "1", 7)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Result(t.Context()); got != "{7 map[kept:1] }" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// On a store that has no transactions for others, Transact says so.
func TestTransactNeedsATransactor(t *testing.T) {
	wf := &engine.Workflow[int, bool]{Name: "w", Func: func(run *engine.Run, _ int) (bool, error) {
		_, err := sqlite.Transact(run, "book", func(context.Context, *sql.Tx) (int, error) { return 0, nil })
		var missing *storage.CapabilityError
		return errors.As(err, &missing), nil
	}}
	eng, stop := running(t, new(memory.Store), wf)
	defer stop()
	h, err := wf.Start(t.Context(), eng, "1", 1)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Result(t.Context()); !got || err != nil {
		t.Errorf("got %v, %v, want a *storage.CapabilityError", got, err)
	}
}

// A transaction whose outcome stays unknown is not repeated without a pause.
func TestTransactionsOfUnknownOutcomeHavePauses(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &silent{Storage: fresh(t), losses: 4}
		wf := flow("w", func(run *engine.Run) (string, error) {
			var booked string
			err := run.TransactStep("book", &booked, func(context.Context) error { booked = "booked"; return nil })
			return booked, err
		})
		p := boot(t, s, wf)
		begun := time.Now()
		got := result(t, start(t, wf, p, "o", ""))
		if took := time.Since(begun); got != "booked" || s.losses != 0 || took < time.Second || took > 10*time.Second {
			t.Errorf("got %q after %v, want pauses of 0.1, 0.2, 0.4 and 0.8 s", got, took)
		}
		p.stop(t)
	})
}

// A silent store loses its first transactions, and does not say so.
type silent struct {
	storage.Storage
	losses int
}

func (s *silent) Unwrap() storage.Storage { return s.Storage }

func (s *silent) Transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	b, err := f(ctx)
	if err == nil && s.losses > 0 {
		s.losses--
		return errors.New("no answer")
	}
	if err != nil {
		return err
	}
	return s.Commit(ctx, b)
}

// What the database refuses to commit is the outcome of the step: its function is called once.
func TestTransactionThatIsRefused(t *testing.T) {
	store, _ := hosted(t)
	calls := 0
	wf := flow("w", func(run *engine.Run) (string, error) {
		_, err := sqlite.Transact(run, "book", func(context.Context, *sql.Tx) (string, error) { calls++; return "booked", nil })
		if !errors.Is(err, storage.ErrTransactionRefused) {
			return "", fmt.Errorf("got %w, want ErrTransactionRefused", err)
		}
		return err.Error(), nil
	})
	p := boot(t, &unfulfilled{Store: store}, wf)
	const want = "transaction refused: a constraint does not hold"
	if got := result(t, start(t, wf, p, "o", "")); !strings.Contains(got, want) || calls != 1 {
		t.Errorf("got %q after %d calls, want %q after one", got, calls, want)
	}
	p.stop(t)
}

// An unfulfilled store has a constraint that does not hold when the first transaction is to be committed.
type unfulfilled struct {
	*sqlite.Store
	refused atomic.Bool
}

func (u *unfulfilled) Unwrap() storage.Storage { return u.Store }

func (u *unfulfilled) Transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	return u.Store.Transact(ctx, func(ctx context.Context) (storage.Batch, error) {
		b, err := f(ctx)
		if err == nil && !u.refused.Swap(true) {
			err = fmt.Errorf("%w: a constraint does not hold", storage.ErrTransactionRefused)
		}
		return b, err
	})
}

// transacting is a store in memory with transactions: of nothing but the batch.
type transacting struct{ storage.Storage }

func (s transacting) Unwrap() storage.Storage { return s.Storage }

func (s transacting) Transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	b, err := f(ctx)
	if err != nil {
		return err
	}
	return s.Commit(ctx, b)
}

// Between two transactions, everything else has its turn: however many transactions follow each other, time limits end them, timers
// fire and updates are answered.
func TestTransactionsLeaveTurns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		ask := &engine.Update[string, int]{Name: "ask"}
		calls := 0
		wf := flow("w", func(run *engine.Run) (string, error) {
			if err := ask.Handle(run, nil, func(*engine.Run, string) (int, error) { return calls, nil }); err != nil {
				return "", err
			}
			slept := engine.Go(run, "sleep", func(run *engine.Run) (int, error) { err := run.Sleep(time.Minute); return calls, err })
			within := run.WithTimeout(2 * time.Minute)
			for calls < 1000 {
				if err := within.TransactStep("book", nil, func(context.Context) error { calls++; time.Sleep(time.Second); return nil }); err != nil {
					before, sleep := slept.Get(run)
					return fmt.Sprintf("%v, %d with the timer, %d in all", errors.Is(err, engine.ErrTimeout), before, calls), sleep
				}
			}
			return "nothing ended it", nil
		})
		p := boot(t, transacting{fresh(t)}, wf)
		h := start(t, wf, p, "o", "")
		time.Sleep(30*time.Second + time.Millisecond)
		if got, err := ask.Call(ctx, p, "o", "", nil); err != nil || got < 27 || got > 33 {
			t.Errorf("after 30 seconds: %d transactions, %v", got, err)
		}
		var timer, all int
		got := result(t, h)
		if n, _ := fmt.Sscanf(got, "true, %d with the timer, %d in all", &timer, &all); n != 2 || timer < 57 || timer > 63 || all < 117 || all > 123 {
			t.Errorf("got %q, want about 60 and 120", got)
		}
		p.stop(t)
	})
}

// A transaction that waits for its turn begins neither after a cancellation was requested nor while the
// engine stops. After a stop the next engine goes on with it.
func TestTransactDoesNotBeginAnyMore(t *testing.T) {
	for _, how := range []string{"cancel", "stop"} {
		t.Run(how, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var calls atomic.Int64
				var p *process
				wf := flow("w", func(run *engine.Run) (string, error) {
					// What is in progress keeps the run of an engine that stops.
					slow := engine.Go(run, "slow", func(run *engine.Run) (int, error) {
						return engine.Step(run, "slow", func(context.Context) (int, error) { time.Sleep(5 * time.Second); return 0, nil })
					})
					_, err := engine.Map(run, "book", 3, []int{1, 2, 3}, func(run *engine.Run, _ int) (int, error) {
						return 0, run.TransactStep("book", nil, func(context.Context) error {
							switch n := calls.Add(1); {
							case n > 1:
							case how == "stop":
								p.end()
								time.Sleep(time.Second)
							default:
								return p.Cancel(ctx, "w", audit)
							}
							return nil
						})
					})
					_, failed := slow.Get(run)
					return "booked", errors.Join(err, failed)
				})
				s := fresh(t)
				p = boot(t, transacting{s}, wf)
				start(t, wf, p, "w", "")
				time.Sleep(time.Minute)
				if n := calls.Load(); n != 1 {
					t.Errorf("%d functions were called, want 1", n)
				}
				if how == "cancel" {
					if i := describe(t, p, "w"); i.Status != checkpoint.StatusCancelled {
						t.Errorf("%s, want it cancelled", i.Status)
					}
					return
				}
				p.stop(t)
				p = boot(t, transacting{s}, wf)
				if got, err := outcome(wf.Handle(p, "w")); got != "booked" || err != nil || calls.Load() != 3 {
					t.Errorf("the next engine: %q, %v after %d calls, want 3", got, err, calls.Load())
				}
			})
		})
	}
}

// A function in a transaction that does not heed its context is left behind, as any
// other.
func TestTransactThatDoesNotComeBack(t *testing.T) {
	virtual(t, func(t *testing.T) {
		let := make(chan struct{})
		wf := flow("w", func(run *engine.Run) (string, error) {
			n := 0
			return fmt.Sprint(n), run.TransactStep("deaf", &n, func(context.Context) error { <-let; return nil })
		})
		s := fresh(t)
		p := boot(t, transacting{s}, wf)
		start(t, wf, p, "w", "")
		time.Sleep(time.Second)
		p.close()
		close(let)
		time.Sleep(time.Second)
		for _, c := range historyOf(t, made(t, s), "w") {
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindEnded {
					t.Error("it went on after the engine was closed")
				}
			}
		}
	})
}

// A function in a transaction that comes back just when it is left behind meets an execution that is
// being wound up.
func TestTransactThatComesBackWhenItIsLeft(t *testing.T) {
	for range 20 {
		virtual(t, func(t *testing.T) {
			wf := flow("w", func(run *engine.Run) (string, error) {
				n := 0
				return fmt.Sprint(n), run.TransactStep("late", &n, func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(time.Minute)
					return nil
				})
			})
			s := fresh(t)
			p := boot(t, transacting{s}, wf, func(c *engine.Config) { c.StopTimeout = time.Minute })
			start(t, wf, p, "w", "")
			time.Sleep(time.Second)
			p.close()
			time.Sleep(time.Second)
			p = boot(t, transacting{s}, wf)
			time.Sleep(time.Second)
			if i := describe(t, p, "w"); i.Status.Terminal() || len(i.Attention) > 0 {
				t.Errorf("%+v", i)
			}
			p.close()
			time.Sleep(2 * time.Minute)
		})
	}
}

// A follower beside the run is told of the transactions of its steps as of all else, so that it misses none when the run
// continues as new.
func TestFollowTransactions(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s storage.Storage) {
		if _, ok := storage.As[storage.Transactor](s); !ok {
			s = transacting{s}
		}
		wf := &engine.Workflow[int, int]{Name: "w", Func: func(run *engine.Run, n int) (int, error) {
			for range 2 {
				if err := run.Sleep(time.Minute); err != nil {
					return 0, err
				}
				if err := run.TransactStep("book", nil, func(context.Context) error { return nil }); err != nil {
					return 0, err
				}
			}
			if n == 3 {
				return n, nil
			}
			return 0, engine.ContinueAsNew(run, n+1)
		}}
		p := boot(t, s, wf, func(c *engine.Config) { c.PollInterval = time.Hour })
		defer p.stop(t)
		start(t, wf, p, "w", 0)
		booked := 0
		for e, err := range p.Follow(ctx, "w", "") {
			if err != nil {
				t.Fatal(err)
			}
			if e.Name == "book" {
				booked++
			}
			if late := time.Since(e.Time); late > time.Second {
				t.Errorf("%s %s comes %v late", e.Kind, e.Name, late)
			}
		}
		if booked != 8 {
			t.Errorf("%d transactions, want 8", booked)
		}
	})
}
