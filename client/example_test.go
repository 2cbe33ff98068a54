package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http/httptest"

	"github.com/weft-go/weft/client"
	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/memory"
)

// An expense is started and approved over HTTP. The definitions are those of the service.
func ExampleClient() {
	bySupervisor := &signal.Signal[string]{Name: "approved"}
	expense := &engine.Workflow[int, string]{Name: "expense", Func: func(run *engine.Run, cents int) (string, error) {
		by, err := bySupervisor.Receive(run)
		return fmt.Sprintf("%d cents, approved by %s", cents, by), err
	}}

	// The service.
	quiet := slog.New(slog.DiscardHandler)
	eng, err := engine.New(engine.Config{Storage: new(memory.Store), Workflows: []engine.Definition{expense}, Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- eng.Run(ctx) }()
	defer func() { stop(); <-ended; eng.Close() }()
	const secret = "weft_sk_of-an-example-only" // in a service: from a file or the environment
	plane, err := control.New(control.Config{Engine: eng, Logger: quiet, Keys: []control.Key{{ID: "shop", Secret: secret, Scopes: []string{"admin"}}}})
	if err != nil {
		log.Fatal(err)
	}
	defer plane.Close()
	server := httptest.NewServer(plane)
	defer server.Close()

	// Its client.
	c, err := client.New(server.URL, secret, &client.Options{Transport: server.Client().Transport})
	if err != nil {
		log.Fatal(err)
	}
	h, err := expense.Start(ctx, c, "expense-7", 4900)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 { // a click that is delivered twice counts once
		a, err := bySupervisor.Send(ctx, c, "expense-7", "bob", &signal.Options{ID: "click-1"})
		fmt.Println(a.Accepted, a.SignalID, err)
	}
	fmt.Println(h.Result(ctx))

	_, err = c.Describe(ctx, "expense-8")
	refused, _ := errors.AsType[*client.Error](err)
	fmt.Println(errors.Is(err, engine.ErrNotFound), refused.Status, refused.Code)
	// Output:
	// true click-1 <nil>
	// true click-1 <nil>
	// 4900 cents, approved by bob <nil>
	// true 404 not_found
}

// A cron job starts one report a day, however often it runs on that day.
func ExampleWithIdempotencyKey() {
	nightly := func(ctx context.Context, c *client.Client, day string) error {
		ctx = client.WithIdempotencyKey(ctx, "report-"+day)
		_, err := c.StartWorkflow(ctx, &engine.StartRequest{Workflow: "report", Input: day})
		return err
	}
	_ = nightly
}
