package consumer_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/consumer"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/storage/storagetest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var errGone = errors.New("the carrier is away")

// An order is what the tests' messages have.
type order struct {
	ID      string
	Version string
	Looms   int
}

var message = consumer.Message{Tenant: "shop", Topic: "orders", Key: "order-1", DedupeID: "m-1"}

func open(t *testing.T, s storage.Storage) *idempotency.Ledger {
	t.Helper()
	l, err := idempotency.New(idempotency.Config{Storage: s, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// is checks all of an outcome but After and Err.
func is(t *testing.T, o consumer.Outcome, next consumer.Next, decision idempotency.Decision) {
	t.Helper()
	if o.Next != next || o.Decision != decision {
		t.Errorf("%v %q (%v), want %v %q", o.Next, o.Decision, o.Err, next, decision)
	}
	if (o.Next == consumer.Retry) != (o.After > 0) {
		t.Errorf("%v after %v", o.Next, o.After)
	}
}

// FEN-41, FEN-42, FEN-43, FEN-44: each end of Run says what to tell the broker, at the first delivery and at the
// next. Only what is sealed is acknowledged.
func TestEndsOfRun(t *testing.T) {
	for _, c := range []struct {
		name      string
		err       error
		next      [2]consumer.Next
		decisions [2]idempotency.Decision
		runs      int
	}{
		{"it happened", nil, [2]consumer.Next{consumer.Ack, consumer.Ack}, [2]idempotency.Decision{"new", "duplicate"}, 1},
		{"nothing happened", activity.NoEffect(errGone), [2]consumer.Next{}, [2]idempotency.Decision{"released", "released"}, 2},
		{"it never will", activity.NoEffect(activity.Permanent(errGone)),
			[2]consumer.Next{consumer.DeadLetter, consumer.DeadLetter}, [2]idempotency.Decision{"failed", "failed"}, 1},
		{"nobody knows", errGone, [2]consumer.Next{}, [2]idempotency.Decision{"indeterminate", "indeterminate"}, 1},
		// What another Do in Run said is not said of this message.
		{"another is stale", activity.NoEffect(&idempotency.StaleError{}), [2]consumer.Next{}, [2]idempotency.Decision{"released", "released"}, 2},
		{"another failed", activity.NoEffect(&idempotency.FailedError{}), [2]consumer.Next{}, [2]idempotency.Decision{"released", "released"}, 2},
		{"another is invalid", activity.NoEffect(idempotency.ErrInvalid), [2]consumer.Next{}, [2]idempotency.Decision{"released", "released"}, 2},
		{"another has lost its result", activity.NoEffect(&idempotency.ResultUnavailableError{}),
			[2]consumer.Next{}, [2]idempotency.Decision{"released", "released"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, runs := open(t, new(memory.Store)), 0
			ship := &idempotency.Effect[order, string]{Name: "ship", Run: func(context.Context, order) (string, error) {
				runs++
				return "parcel-1", c.err
			}}
			first := consumer.Do(t.Context(), l, ship, message, order{ID: "order-1"})
			is(t, first, c.next[0], c.decisions[0])
			if want := map[idempotency.Decision]time.Duration{"released": 5 * time.Second, "indeterminate": time.Minute}[first.Decision]; first.After != want {
				t.Errorf("after %v, want %v", first.After, want)
			}
			if c.err != nil && !errors.Is(first.Err, errGone) && errors.Is(c.err, errGone) && first.Decision != idempotency.DecidedFailed {
				t.Errorf("the error is %v, want %v", first.Err, errGone)
			}
			second := consumer.Do(t.Context(), l, ship, message, order{ID: "order-1"})
			is(t, second, c.next[1], c.decisions[1])
			if first.EffectID == "" || first.EffectID != second.EffectID {
				t.Errorf("effect ids %q and %q", first.EffectID, second.EffectID)
			}
			if runs != c.runs {
				t.Errorf("%d runs, want %d", runs, c.runs)
			}
		})
	}
}

// A panic may be with an error of another effect. Its marks do not say that this message will always fail.
func TestMarksOfAPanic(t *testing.T) {
	l, runs := open(t, new(memory.Store)), 0
	ship := &idempotency.Effect[order, string]{
		Name: "ship",
		Run: func(context.Context, order) (string, error) {
			if runs++; runs == 1 {
				panic(activity.NoEffect(activity.Permanent(errGone)))
			}
			return "parcel-1", nil
		},
		Verify: func(context.Context, order) (activity.Verification[string], error) {
			return activity.NotCompleted[string](), nil
		},
	}
	first := consumer.Do(t.Context(), l, ship, message, order{ID: "order-1"})
	if is(t, first, consumer.Retry, idempotency.DecidedReleased); !errors.Is(first.Err, errGone) {
		t.Errorf("the error is %v, want %v", first.Err, errGone)
	}
	is(t, consumer.Do(t.Context(), l, ship, message, order{ID: "order-1"}), consumer.Ack, idempotency.DecidedNew)
}

// FEN-29: the same message with other data goes to the dead letters, and so does what is invalid. An invalid
// definition is not the message's fault.
func TestDeadLetters(t *testing.T) {
	l, runs := open(t, new(memory.Store)), 0
	ship := &idempotency.Effect[order, string]{Name: "ship", Run: func(context.Context, order) (string, error) {
		runs++
		return "", nil
	}}
	is(t, consumer.Do(t.Context(), l, ship, message, order{Looms: 1}), consumer.Ack, idempotency.DecidedNew)
	is(t, consumer.Do(t.Context(), l, ship, message, order{Looms: 2}), consumer.DeadLetter, idempotency.DecidedConflict)
	for _, m := range []consumer.Message{
		{},
		{Topic: "orders"},
		{Key: "order-1"},
		{Topic: "\xff", Key: "order-1"},
		{Topic: "a\x00", Key: "order-1"},
		{Topic: string(bytes.Repeat([]byte("x"), 201)), Key: "order-1"},
		{Tenant: "\xff", Topic: "orders", Key: "order-1"},
	} {
		o := consumer.Do(t.Context(), l, ship, m, order{})
		if is(t, o, consumer.DeadLetter, ""); !errors.Is(o.Err, idempotency.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", m, o.Err)
		}
	}
	if runs != 1 {
		t.Errorf("%d runs, want 1", runs)
	}
	bad := *ship
	bad.RetryHorizon = 8 * 24 * time.Hour
	is(t, consumer.Do(t.Context(), l, &bad, message, order{Looms: 1}), consumer.Retry, "")
	is(t, consumer.Do[order, string](t.Context(), l, nil, message, order{Looms: 1}), consumer.Retry, "")
	is(t, consumer.Do(t.Context(), nil, ship, message, order{Looms: 1}), consumer.Retry, "")
}

// A flaky codec fails to encode so many times.
type flaky struct {
	idempotency.Codec
	fails int
}

func (c *flaky) Name() string { return "flaky" }

func (c *flaky) Encode(ctx context.Context, v any) ([]byte, error) {
	if c.fails > 0 {
		c.fails--
		return nil, errors.New("the keys of the codec cannot be read")
	}
	return c.Codec.Encode(ctx, v)
}

// FEN-44: faults of the host are not the message's: it is delivered again, and then it takes effect.
func TestFaultsOfTheHost(t *testing.T) {
	ship := &idempotency.Effect[order, string]{Name: "ship", Run: func(context.Context, order) (string, error) { return "", nil }}
	t.Run("codec", func(t *testing.T) {
		c := &flaky{weft.JSON, 1}
		l, err := idempotency.New(idempotency.Config{Storage: new(memory.Store), Codec: c, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		is(t, consumer.Do(t.Context(), l, ship, message, order{}), consumer.Retry, "")
		is(t, consumer.Do(t.Context(), l, ship, message, order{}), consumer.Ack, idempotency.DecidedNew)
	})
	t.Run("order", func(t *testing.T) {
		l, fails := open(t, new(memory.Store)), false
		ordered := *ship
		ordered.Order = &idempotency.Order[order]{
			Source:  func(o order) string { return o.ID },
			Version: func(o order) string { return o.Version },
			Compare: func(a, b string) (int, error) {
				if fails && a != b {
					return 0, errors.New("the versions cannot be read")
				}
				return idempotency.CompareInt(a, b)
			},
		}
		later := message
		later.DedupeID = "m-2"
		is(t, consumer.Do(t.Context(), l, &ordered, message, order{ID: "a", Version: "1"}), consumer.Ack, idempotency.DecidedNew)
		fails = true
		is(t, consumer.Do(t.Context(), l, &ordered, later, order{ID: "a", Version: "2"}), consumer.Retry, "")
		fails = false
		is(t, consumer.Do(t.Context(), l, &ordered, later, order{ID: "a", Version: "2"}), consumer.Ack, idempotency.DecidedNew)
		later.DedupeID = "m-3"
		is(t, consumer.Do(t.Context(), l, &ordered, later, order{ID: "a", Version: "third"}), consumer.DeadLetter, "")
	})
	t.Run("reserve", func(t *testing.T) {
		l := open(t, new(memory.Store))
		var reserved idempotency.Reservation
		var err error
		reserving := *ship
		reserving.Reserve = func(context.Context, order) (idempotency.Reservation, error) {
			if err != nil && reserved.EffectID == "panic" {
				panic(err)
			}
			return reserved, err
		}
		for _, reserved = range []idempotency.Reservation{{}, {EffectID: strings.Repeat("x", 201)}, {EffectID: "id", Data: make([]byte, 64<<10+1)}} {
			is(t, consumer.Do(t.Context(), l, &reserving, message, order{}), consumer.Retry, "")
		}
		err = fmt.Errorf("the id cannot be asked for: %w", idempotency.ErrInvalid) // of another Do
		for _, reserved.EffectID = range []string{"", "panic"} {
			is(t, consumer.Do(t.Context(), l, &reserving, message, order{}), consumer.Retry, "")
		}
		reserved, err = idempotency.Reservation{EffectID: "id"}, nil
		is(t, consumer.Do(t.Context(), l, &reserving, message, order{}), consumer.Ack, idempotency.DecidedNew)
	})
}

// FEN-44: a Reserve that heeds its context ends after the Effect's Timeout, although a delivery has no end: the message comes
// again. One that takes its time is waited for.
func TestReserveEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, new(memory.Store))
		ship := &idempotency.Effect[order, string]{Name: "ship", Run: func(context.Context, order) (string, error) { return "", nil }}
		ship.Reserve = func(ctx context.Context, o order) (idempotency.Reservation, error) {
			select {
			case <-ctx.Done():
				return idempotency.Reservation{}, context.Cause(ctx)
			case <-time.After(time.Duration(o.Looms) * time.Second):
				return idempotency.Reservation{EffectID: "id"}, nil
			}
		}
		for _, timeout := range []time.Duration{0, time.Minute} {
			ship.Timeout = timeout
			want := cmp.Or(timeout, idempotency.DefaultTimeout)
			begun := time.Now()
			o := consumer.Do(t.Context(), l, ship, message, order{Looms: 3600})
			is(t, o, consumer.Retry, "")
			if d := time.Since(begun); d != want || !errors.Is(o.Err, activity.ErrTimeout) {
				t.Errorf("%v after %v, want %v after %v", o.Err, d, activity.ErrTimeout, want)
			}
		}
		is(t, consumer.Do(t.Context(), l, ship, message, order{Looms: 20}), consumer.Ack, idempotency.DecidedNew)
		l.Close()
	})
}

// FEN-40, FEN-44: while a delivery is in progress, others of the message are to be delivered again, when its error says. They do not
// wait. The claim has no end of its own: three days later they still are.
func TestInProgressIsNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, finish := open(t, new(memory.Store)), make(chan bool)
		ship := &idempotency.Effect[order, string]{Name: "ship", Timeout: 7 * 24 * time.Hour, Run: func(context.Context, order) (string, error) {
			<-finish
			return "", nil
		}}
		var first sync.WaitGroup
		first.Go(func() {
			is(t, consumer.Do(t.Context(), l, ship, message, order{}), consumer.Ack, idempotency.DecidedNew)
		})
		for _, after := range []time.Duration{0, 3*24*time.Hour + time.Minute} {
			time.Sleep(after)
			synctest.Wait()
			begun := time.Now()
			o := consumer.Do(t.Context(), l, ship, message, order{})
			is(t, o, consumer.Retry, idempotency.DecidedInProgress)
			var busy *idempotency.InProgressError
			if !errors.As(o.Err, &busy) || o.After != busy.RetryAfter || o.After == 5*time.Second {
				t.Errorf("after %v: %v", o.After, o.Err)
			}
			if waited := time.Since(begun); waited != 0 {
				t.Errorf("a delivery waited for another one: %v", waited)
			}
		}
		finish <- true
		first.Wait()
		is(t, consumer.Do(t.Context(), l, ship, message, order{}), consumer.Ack, idempotency.DecidedDuplicate)
		l.Close()
	})
}

// FEN-42, FEN-44: if the store does not confirm the seal, the message is not acknowledged, whether or not the
// seal was written.
func TestNoAckBeforeTheSealIsDurable(t *testing.T) {
	for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.CrashBefore, storagetest.CrashAfter} {
		synctest.Test(t, func(t *testing.T) {
			inner, ran := new(memory.Store), false
			s := storagetest.NewFaulty(inner, func(c storagetest.Call) storagetest.Fault {
				if ran && c.Method == "Commit" {
					return fault
				}
				return storagetest.None
			})
			l := open(t, s)
			ship := &idempotency.Effect[order, string]{
				Name: "ship", OnAbandoned: idempotency.TakeOver,
				Run: func(context.Context, order) (string, error) { ran = true; return "", nil },
			}
			if o := consumer.Do(t.Context(), l, ship, message, order{}); o.Next != consumer.Retry || !ran {
				t.Errorf("fault %d: %v %q, want retry", fault, o.Next, o.Decision)
			}
			s.Crash()
			l.Close()
			l = open(t, storagetest.NewFaulty(inner, nil))
			deadline := time.Now().Add(time.Hour)
			for o := consumer.Do(t.Context(), l, ship, message, order{}); o.Next != consumer.Ack; o = consumer.Do(t.Context(), l, ship, message, order{}) {
				if o.Next != consumer.Retry || time.Now().After(deadline) {
					t.Fatalf("%v %q %v", o.Next, o.Decision, o.Err)
				}
				time.Sleep(o.After)
			}
			l.Close()
		})
	}
}

// A message that is older than the last sealed one of its source is done.
func TestStaleIsAcknowledged(t *testing.T) {
	l, runs := open(t, new(memory.Store)), 0
	ship := &idempotency.Effect[order, string]{
		Name: "ship",
		Run:  func(context.Context, order) (string, error) { runs++; return "", nil },
		Order: &idempotency.Order[order]{
			Source: func(o order) string { return o.ID }, Version: func(o order) string { return o.Version }, Compare: idempotency.CompareInt,
		},
	}
	is(t, consumer.Do(t.Context(), l, ship, message, order{ID: "order-1", Version: "10"}), consumer.Ack, idempotency.DecidedNew)
	older := message
	older.DedupeID = "m-0"
	is(t, consumer.Do(t.Context(), l, ship, older, order{ID: "order-1", Version: "9"}), consumer.Ack, idempotency.DecidedStale)
	if runs != 1 {
		t.Errorf("%d runs, want 1", runs)
	}
}

// FEN-17, FEN-21, FEN-42: a result is kept for 14 days from its seal, or for as long as the policies or the Effect say.
func TestRetention(t *testing.T) {
	for _, c := range []struct{ policy, days, want int }{{0, 0, 14}, {0, 3, 3}, {30, 0, 30}, {30, 20, 20}} {
		policies := idempotency.Policies{TTL: idempotency.TTLPolicy{WebhookDays: c.policy}}
		l, err := idempotency.New(idempotency.Config{Storage: new(memory.Store), Policies: policies, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		days, want := c.days, c.want
		ship := &idempotency.Effect[order, string]{
			Name: "ship", Retention: time.Duration(days) * 24 * time.Hour,
			Run: func(context.Context, order) (string, error) { return "", nil },
		}
		m := consumer.Message{Topic: "orders", Partition: "0", DedupeID: "7"}
		is(t, consumer.Do(t.Context(), l, ship, m, order{}), consumer.Ack, idempotency.DecidedNew)
		if ship.Wait != 0 || ship.Retention != time.Duration(days)*24*time.Hour {
			t.Errorf("the Effect was changed: %+v", ship)
		}
		found := false
		for i, err := range l.List(t.Context(), idempotency.Filter{SourceType: "orders", SourceID: "0::" + m.DedupeID}) {
			if err != nil {
				t.Fatal(err)
			}
			found = true
			if got := i.Expires.Sub(i.SealedAt); got != time.Duration(want)*24*time.Hour {
				t.Errorf("Retention of %d days, policies of %d: kept for %v, want %d days", days, c.policy, got, want)
			}
		}
		if !found {
			t.Errorf("%+v is not listed", m)
		}
	}
}

// A context that has ended does nothing. One that ends later does not cut the effect off.
func TestContext(t *testing.T) {
	l := open(t, new(memory.Store))
	ctx, cancel := context.WithCancel(t.Context())
	ship := &idempotency.Effect[order, string]{Name: "ship", Run: func(ctx context.Context, _ order) (string, error) {
		cancel()
		return "", ctx.Err()
	}}
	is(t, consumer.Do(ctx, l, ship, message, order{}), consumer.Ack, idempotency.DecidedNew)
	o := consumer.Do(ctx, l, ship, consumer.Message{Topic: "orders", Key: "another"}, order{})
	if is(t, o, consumer.Retry, ""); !errors.Is(o.Err, context.Canceled) {
		t.Errorf("%v, want %v", o.Err, context.Canceled)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	o = consumer.Do(t.Context(), l, ship, message, order{})
	if is(t, o, consumer.Retry, ""); !errors.Is(o.Err, idempotency.ErrClosed) {
		t.Errorf("%v, want ErrClosed", o.Err)
	}
}

// FEN-45: several effects of one message, each with an Action of its own, are sealed apart: what has happened does
// not happen again when another one is tried again.
func TestSeveralEffects(t *testing.T) {
	l, ran := open(t, new(memory.Store)), map[string]int{}
	effect := func(name string, err error) *idempotency.Effect[order, string] {
		return &idempotency.Effect[order, string]{Name: name, Run: func(context.Context, order) (string, error) {
			ran[name]++
			return name, err
		}}
	}
	is(t, consumer.Do(t.Context(), l, effect("book", nil), message, order{}), consumer.Ack, idempotency.DecidedNew)
	is(t, consumer.Do(t.Context(), l, effect("ship", activity.NoEffect(errGone)), message, order{}), consumer.Retry, idempotency.DecidedReleased)
	is(t, consumer.Do(t.Context(), l, effect("book", nil), message, order{}), consumer.Ack, idempotency.DecidedDuplicate)
	is(t, consumer.Do(t.Context(), l, effect("ship", nil), message, order{}), consumer.Ack, idempotency.DecidedNew)
	if ran["book"] != 1 || ran["ship"] != 2 {
		t.Errorf("runs %v, want book once and ship twice", ran)
	}
}

// FEN-45: on a Ledger of In, several effects of one message are one commit with the host's rows, or nothing.
func TestSeveralEffectsInOneTransaction(t *testing.T) {
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "shop.db")
	store, err := sqlite.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	l := open(t, store)
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.ExecContext(ctx, "CREATE TABLE book (what TEXT)"); err != nil {
		t.Fatal(err)
	}
	never := activity.NoEffect(activity.Permanent(errGone))
	type end struct {
		consumer.Next
		idempotency.Decision
	}
	happens, again := end{consumer.Ack, idempotency.DecidedNew}, end{consumer.Ack, idempotency.DecidedDuplicate}
	for _, c := range []struct {
		commit bool
		err    error // of the second effect
		want   [2]end
	}{
		{false, nil, [2]end{happens, happens}},
		{false, activity.NoEffect(errGone), [2]end{happens, {consumer.Retry, idempotency.DecidedReleased}}},
		{false, never, [2]end{happens, {consumer.DeadLetter, idempotency.DecidedReleased}}},
		{true, nil, [2]end{happens, happens}},
		{true, nil, [2]end{again, again}},
	} {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		in := l.In(store.WithTx(tx))
		for i, name := range []string{"book", "ship"} {
			e := &idempotency.Effect[order, string]{Name: name, Run: func(ctx context.Context, _ order) (string, error) {
				if _, err := tx.ExecContext(ctx, "INSERT INTO book VALUES (?)", name); err != nil {
					return "", err
				}
				if name == "ship" {
					return "", c.err
				}
				return name, nil
			}}
			is(t, consumer.Do(ctx, in, e, message, order{}), c.want[i].Next, c.want[i].Decision)
		}
		end := tx.Rollback
		if c.commit {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	var rows int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM book").Scan(&rows); err != nil || rows != 2 {
		t.Errorf("%d rows, %v; want 2", rows, err)
	}

	// Whatever this delivery says of itself, the one before may have had its effect.
	doubtful := &idempotency.Effect[order, string]{Name: "bill", OnAbandoned: idempotency.TakeOver}
	doubtful.Run = func(context.Context, order) (string, error) { return "", errGone }
	is(t, consumer.Do(ctx, l, doubtful, message, order{}), consumer.Retry, idempotency.DecidedIndeterminate)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	doubtful.Run = func(context.Context, order) (string, error) { return "", never }
	o := consumer.Do(ctx, l.In(store.WithTx(tx)), doubtful, message, order{})
	if is(t, o, consumer.Retry, idempotency.DecidedReleased); !errors.Is(o.Err, errGone) {
		t.Errorf("%v, want %v", o.Err, errGone)
	}
}

// The zero Outcome acknowledges nothing, and each Next has a name.
func TestNext(t *testing.T) {
	var zero consumer.Outcome
	if zero.Next != consumer.Retry {
		t.Errorf("the zero Outcome is %v, want retry", zero.Next)
	}
	for next, want := range map[consumer.Next]string{consumer.Ack: "ack", consumer.Retry: "retry", consumer.DeadLetter: "dead-letter", 3: "invalid"} {
		if got := next.String(); got != want {
			t.Errorf("%d is %q, want %q", next, got, want)
		}
	}
}
