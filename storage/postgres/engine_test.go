package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage/postgres"
)

// Interleaving 6: the transaction that commits a step and its checkpoint has an unknown
// outcome, because the connection is cut at COMMIT. Whether or not the server committed
// it, the step's row is stored exactly once.
func TestStepIsBookedOnceWhileCut(t *testing.T) {
	direct := pgtest.URL(t)
	p, url := proxied(t, direct)
	s := open(t, url, &postgres.Options{NoListen: true})
	tx := host(t, direct)
	exec(t, tx, `CREATE TABLE seats (n text)`)
	must(t, tx.Commit(t.Context()))
	book := &engine.Workflow[string, string]{Name: "book", Func: func(run *engine.Run, seat string) (string, error) {
		return postgres.Transact(run, "book", func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, err := tx.Exec(ctx, `INSERT INTO seats VALUES ($1)`, seat)
			return seat, err
		})
	}}
	e := running(t, engine.Config{Storage: s, Workflows: []engine.Definition{book}})
	cuts := map[action]int{}
	p.on(func(m message) action {
		do := pass
		if m.kind == 'Q' && string(m.body) == "commit\x00" {
			do = action((cuts[pass] + cuts[cutBefore] + cuts[cutAfter] + cuts[loseReply]) % 4)
			cuts[do]++
		}
		return do
	})
	const seats = 40
	var booked sync.WaitGroup
	for i := range seats {
		booked.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			seat := fmt.Sprintf("seat %02d", i)
			h, err := book.Start(ctx, e, seat, seat)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := h.Result(ctx); got != seat || err != nil {
				t.Errorf("got %q and error %v, want %q", got, err, seat)
			}
		})
	}
	booked.Wait()
	p.on(nil)
	rows, _ := host(t, direct).Query(t.Context(), `SELECT n FROM seats ORDER BY n`)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	var want []string
	for i := range seats {
		want = append(want, fmt.Sprintf("seat %02d", i))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got the rows %q, want each seat once", got)
	}
	t.Logf("COMMIT was passed on %d times, cut before %d, after %d, and its answer lost %d", cuts[pass], cuts[cutBefore], cuts[cutAfter], cuts[loseReply])
	if cuts[cutBefore] < 5 || cuts[loseReply] < 5 {
		t.Error("too few cuts to mean something")
	}
}

// A connection dies without a sign of it, as if the server's machine had lost its power and another one had its address
// now. A renewal that is sent on it gets no answer, and the engine keeps its lease by another connection.
func TestLeaseOutlivesASilentConnection(t *testing.T) {
	p, url := proxied(t, pgtest.URL(t))
	renewals := 0
	p.on(func(m message) action {
		if m.binds("weft_swap") {
			if renewals++; renewals == 1 {
				return swallow
			}
		}
		return pass
	})
	running(t, engine.Config{
		Storage:   open(t, url, &postgres.Options{NoListen: true}),
		Workflows: []engine.Definition{&engine.Workflow[string, string]{Name: "w", Func: func(*engine.Run, string) (string, error) { return "", nil }}},
		LeaseTTL:  15 * time.Second, // the default
		Events:    engine.Events{Deposed: func(engine.DeposedEvent) { t.Error("the lease was lost") }},
	})
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		p.mu.Lock()
		n := renewals
		p.mu.Unlock()
		if n >= 3 {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("%d renewals were sent", n)
		}
	}
}

// OW5: an engine keeps its lease while the connection on which it renews is cut, during a
// renewal and between two. The engine checks each renewal whose outcome is unknown.
func TestLeaseOutlivesItsConnections(t *testing.T) {
	p, url := proxied(t, pgtest.URL(t))
	s := open(t, url, &postgres.Options{NoListen: true})
	echo := &engine.Workflow[string, string]{Name: "echo", Func: func(_ *engine.Run, in string) (string, error) { return in, nil }}
	e := running(t, engine.Config{
		Storage:   s,
		Workflows: []engine.Definition{echo},
		LeaseTTL:  12 * time.Second,
		Events:    engine.Events{Deposed: func(engine.DeposedEvent) { t.Error("the lease was lost") }},
	})
	cuts := map[action]int{}
	p.on(func(m message) action {
		do := pass
		if m.binds("weft_swap") {
			do = []action{pass, cutBefore, loseReply}[(cuts[pass]+cuts[cutBefore]+cuts[loseReply])%3]
			cuts[do]++
		}
		return do
	})
	enough := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return cuts[cutBefore] >= 3 && cuts[loseReply] >= 3
	}
	between := 0
	for end := time.Now().Add(2 * time.Minute); !enough() && time.Now().Before(end); between++ {
		time.Sleep(time.Duration(800+rand.N(400)) * time.Millisecond)
		p.cutAll()
	}
	p.on(nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h, err := echo.Start(ctx, e, "after", "all of it")
	must(t, err)
	if got, err := h.Result(ctx); got != "all of it" || err != nil {
		t.Errorf("got %q and error %v", got, err)
	}
	t.Logf("a renewal was passed on %d times, cut before %d, and its answer lost %d; all was cut %d times", cuts[pass], cuts[cutBefore], cuts[loseReply], between)
	if !enough() {
		t.Error("too few cuts to mean something")
	}
}

// running returns an engine that runs until the test ends.
func running(t *testing.T, c engine.Config) *engine.Engine {
	c.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	e, err := engine.New(c)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
	return e
}
