package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
)

// What another process starts, signals and cancels is taken up when the database
// tells of it, long before the next poll; and by the poll where nobody listens
// (SG7).
func TestOtherProcessesAreHeard(t *testing.T) {
	t.Run("LISTEN", func(t *testing.T) { hearOthers(t, &postgres.Options{}, 10*time.Hour) })
	t.Run("NoListen", func(t *testing.T) { hearOthers(t, &postgres.Options{NoListen: true}, 100*time.Millisecond) })
}

func hearOthers(t *testing.T, o *postgres.Options, poll time.Duration) {
	url := pgtest.URL(t)
	opened := func() storage.Storage {
		s, err := postgres.Open(t.Context(), url, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	paid := &signal.Signal[string]{Name: "paid"}
	order := flow("order", func(run *engine.Run) (string, error) { return paid.Receive(run) })
	worker := boot(t, opened(), order, func(c *engine.Config) { c.PollInterval = poll })
	asks := made(t, opened())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for round, end := range []func(id string) error{
		func(id string) error {
			_, err := paid.Send(ctx, asks, id, "ann", nil)
			return err
		},
		func(id string) error { return asks.Cancel(ctx, id, engine.Actor{}) },
	} {
		id := sprint("order ", round)
		if _, err := order.Start(ctx, asks, id, ""); err != nil {
			t.Fatal(err)
		}
		driven := func() bool {
			i, err := worker.Describe(ctx, id)
			return err == nil && len(i.Waiting) > 0 || ctx.Err() != nil
		}
		for !driven() {
			time.Sleep(5 * time.Millisecond)
		}
		if err := end(id); err != nil {
			t.Fatal(err)
		}
		var got string
		err := worker.Result(ctx, id, "order", &got)
		if round == 0 && (err != nil || got != "ann") || round == 1 && !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("%s: got %q and error %v", id, got, err)
		}
	}
}
