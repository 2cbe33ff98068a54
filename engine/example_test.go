package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/memory"
)

type parcel struct{ Order, City string }

// An order is packed and shipped. Started again under its id, it is the same.
func ExampleWorkflow() {
	ship := &engine.Workflow[parcel, string]{
		Name: "ship",
		Func: func(run *engine.Run, p parcel) (string, error) {
			return engine.Step(run, "hand over", func(context.Context) (string, error) {
				return fmt.Sprintf("%s is on its way to %s", p.Order, p.City), nil
			})
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: []engine.Definition{ship},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	go eng.Run(ctx)
	defer eng.Close()
	defer stop()

	for range 2 {
		h, err := ship.Start(ctx, eng, "order-42", parcel{"order-42", "Lisbon"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(h.Result(ctx))
	}
	info, err := eng.Describe(ctx, "order-42")
	fmt.Println(info.Workflow, info.Status, err)
	// Output:
	// order-42 is on its way to Lisbon <nil>
	// order-42 is on its way to Lisbon <nil>
	// ship completed <nil>
}

// An order waits for its payment while the code changes. The new code checks the address before it
// ships, which it did not do before. An order that has passed the check's place is shipped without.
func ExampleRun_Version() {
	paid := &signal.Signal[bool]{Name: "paid"}
	build := func(newest int) *engine.Workflow[string, string] {
		w := &engine.Workflow[string, string]{Name: "order", Func: func(run *engine.Run, city string) (string, error) {
			if newest > 0 && run.Version("check-address") >= 1 {
				city += " (checked)"
			}
			city, err := engine.Step(run, "reserve", func(context.Context) (string, error) { return city, nil })
			if err != nil {
				return "", err
			}
			if _, err := paid.Receive(run); err != nil {
				return "", err
			}
			return "shipped to " + city, nil
		}}
		if newest > 0 {
			w.Versions = map[string]int{"check-address": newest}
		}
		return w
	}
	store := new(memory.Store)
	deploy := func(newest int, do func(eng *engine.Engine, order *engine.Workflow[string, string])) {
		order := build(newest)
		eng, err := engine.New(engine.Config{Storage: store, Workflows: []engine.Definition{order}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			log.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ran := make(chan error)
		go func() { ran <- eng.Run(ctx) }()
		do(eng, order)
		stop()
		<-ran
	}
	begin := func(eng *engine.Engine, order *engine.Workflow[string, string], id string) {
		if _, err := order.Start(context.Background(), eng, id, "Lisbon"); err != nil {
			log.Fatal(err)
		}
		for { // until it waits for its payment
			if i, err := eng.Describe(context.Background(), id); err == nil && len(i.Waiting) == 1 && i.Waiting[0] == "receive paid" {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	deploy(0, func(eng *engine.Engine, order *engine.Workflow[string, string]) { begin(eng, order, "order-1") })
	deploy(1, func(eng *engine.Engine, order *engine.Workflow[string, string]) {
		begin(eng, order, "order-2")
		for _, id := range []string{"order-1", "order-2"} {
			if _, err := paid.Send(context.Background(), eng, id, true, nil); err != nil {
				log.Fatal(err)
			}
			fmt.Println(order.Handle(eng, id).Result(context.Background()))
			i, err := eng.Describe(context.Background(), id)
			fmt.Println(i.Versions, err)
		}
	})
	// Output:
	// shipped to Lisbon <nil>
	// map[] <nil>
	// shipped to Lisbon (checked) <nil>
	// map[check-address:1] <nil>
}

// Of all orders that wait to be printed one is printed at a time, in the order in which
// they came, whatever number of engines serves the queue.
func ExampleQueue() {
	print := &engine.Workflow[string, string]{
		Name:     "print",
		Defaults: engine.StartOptions{Queue: "printer"},
		Func: func(run *engine.Run, document string) (string, error) {
			return engine.Step(run, "print", func(context.Context) (string, error) {
				fmt.Println("printing", document)
				return "printed " + document, nil
			})
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: []engine.Definition{print},
		Queues:    []engine.Queue{{Name: "printer", Concurrency: 1}},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, document := range []string{"invoice-1", "label-1", "invoice-2"} {
		if _, err := print.Start(ctx, eng, document, document); err != nil {
			log.Fatal(err)
		}
	}
	info, err := eng.Describe(ctx, "label-1")
	fmt.Println(info.Status, info.Waiting, err)

	go eng.Run(ctx)
	defer eng.Close()
	defer stop()
	fmt.Println(print.Handle(eng, "invoice-2").Result(ctx))
	// Output:
	// pending [admission to queue "printer" an engine: none runs] <nil>
	// printing invoice-1
	// printing label-1
	// printing invoice-2
	// printed invoice-2 <nil>
}

// Steps are inline: their results are durable before the next one begins.
func ExampleStep() {
	invoice := &engine.Workflow[int, string]{
		Name: "invoice",
		Func: func(run *engine.Run, cents int) (string, error) {
			number, err := engine.Step(run, "take a number", func(context.Context) (int, error) {
				return 2026_001, nil // from the books
			})
			if err != nil {
				return "", err
			}
			return engine.Step(run, "print", func(context.Context) (string, error) {
				return fmt.Sprintf("invoice %d over %d cents", number, cents), nil
			})
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: []engine.Definition{invoice},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	go eng.Run(ctx)
	defer eng.Close()
	defer stop()

	h, err := invoice.Start(ctx, eng, "order-42", 4900)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(h.Result(ctx))
	// Output: invoice 2026001 over 4900 cents <nil>
}

// Two builds are up. An order that was begun by one is finished by it, while new ones
// are begun by the other.
func ExampleEngine_Activate() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := new(memory.Store)
	paid := &signal.Signal[string]{Name: "paid"}
	begun := make(chan bool, 1)

	build := func(deployment string) (*engine.Engine, *engine.Workflow[string, string]) {
		order := &engine.Workflow[string, string]{
			Name:   "order",
			Pinned: true,
			Func: func(run *engine.Run, customer string) (string, error) {
				_, err := engine.Step(run, "note", func(context.Context) (any, error) {
					begun <- true
					return nil, nil
				})
				if err != nil {
					return "", err
				}
				by, err := paid.Receive(run)
				return fmt.Sprintf("%s's order, paid by %s, finished by %s", customer, by, deployment), err
			},
		}
		eng, err := engine.New(engine.Config{
			Storage:      store,
			Workflows:    []engine.Definition{order},
			Deployment:   deployment,
			PollInterval: 10 * time.Millisecond,
			Logger:       slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			log.Fatal(err)
		}
		go eng.Run(ctx)
		return eng, order
	}
	release := func(eng *engine.Engine, deployment string) {
		if err := eng.Activate(ctx, deployment, engine.Actor{Name: "ann", Reason: "release"}); err != nil {
			log.Fatal(err)
		}
	}
	start := func(eng *engine.Engine, order *engine.Workflow[string, string], customer string) *engine.Handle[string] {
		h, err := order.Start(ctx, eng, "order of "+customer, customer)
		if err != nil {
			log.Fatal(err)
		}
		<-begun
		return h
	}

	july, order := build("july")
	defer july.Close()
	release(july, "july")
	first := start(july, order, "bob")

	august, _ := build("august")
	defer august.Close()
	release(august, "august")
	second := start(july, order, "eve") // wherever it is started

	for _, h := range []*engine.Handle[string]{first, second} {
		if _, err := paid.Send(ctx, august, h.ID(), "card", nil); err != nil {
			log.Fatal(err)
		}
		fmt.Println(h.Result(ctx))
	}
	// Output:
	// bob's order, paid by card, finished by july <nil>
	// eve's order, paid by card, finished by august <nil>
}

// A shop shows a customer how far an order is. The workflow publishes it, and the page reads it.
func ExampleValue() {
	stage := &engine.Value[string]{Name: "stage"}
	packed := &signal.Signal[string]{Name: "packed"}
	order := &engine.Workflow[string, string]{
		Name: "order",
		Func: func(run *engine.Run, article string) (string, error) {
			if err := stage.Set(run, "waits to be packed"); err != nil {
				return "", err
			}
			by, err := packed.Receive(run)
			if err != nil {
				return "", err
			}
			return article + " packed by " + by, stage.Set(run, "on its way")
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: []engine.Definition{order},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	go eng.Run(ctx)
	defer eng.Close()
	defer stop()

	h, err := order.Start(ctx, eng, "order-42", "tea")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stage.Await(ctx, eng, "order-42", func(string) bool { return true }))
	if _, err := packed.Send(ctx, eng, "order-42", "ann", nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(h.Result(ctx))
	fmt.Println(stage.Read(ctx, eng, "order-42"))
	// Output:
	// waits to be packed <nil>
	// tea packed by ann <nil>
	// on its way <nil>
}

// Completed orders are kept for a year, and everything else for a week. What is in dispute stays,
// and what must go goes at once.
func ExampleRetention() {
	const day = 24 * time.Hour
	order := &engine.Workflow[string, string]{
		Name:      "order",
		Retention: engine.Retention{Completed: 365 * day},
		Func:      func(run *engine.Run, what string) (string, error) { return "shipped " + what, nil },
	}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: []engine.Definition{order},
		Retention: engine.Retention{Completed: 7 * day, Failed: 7 * day, Cancelled: 7 * day},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	go eng.Run(ctx)
	defer eng.Close()
	defer stop()
	h, err := order.Start(ctx, eng, "order-42", "a lamp")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(h.Result(ctx))

	law := engine.Actor{Name: "legal department", Reason: "case 7"}
	fmt.Println(eng.Protect(ctx, "order-42", law))
	err = eng.Delete(ctx, "order-42", engine.Actor{Name: "ann", Reason: "the customer asked for it"})
	fmt.Println(errors.Is(err, engine.ErrProtected))
	fmt.Println(eng.Unprotect(ctx, "order-42", law))
	fmt.Println(eng.Delete(ctx, "order-42", engine.Actor{Name: "ann", Reason: "the customer asked for it"}))
	_, err = eng.Describe(ctx, "order-42")
	fmt.Println(errors.Is(err, engine.ErrNotFound))
	// Output:
	// shipped a lamp <nil>
	// <nil>
	// true
	// <nil>
	// <nil>
	// true
}

// A report is started at the times of a schedule, and once more when somebody asks for it.
func ExampleEngine_PutSchedule() {
	ctx := context.Background()
	report := &engine.Workflow[string, string]{Name: "report", Func: func(run *engine.Run, shop string) (string, error) {
		at, scheduled := run.Nominal()
		if !scheduled {
			return shop + ", because somebody asked", nil
		}
		return fmt.Sprintf("%s, at the whole second: %t", shop, at.Equal(at.Truncate(time.Second))), nil
	}}
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: []engine.Definition{report},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	go eng.Run(ctx)

	ann := engine.Actor{Name: "ann", Reason: "the boss wants reports"}
	s := engine.Schedule{ID: "reports", Start: report.Request("", "north"), Every: time.Second} // in a service: Cron, and a Zone
	if err := eng.PutSchedule(ctx, s, ann); err != nil {
		log.Fatal(err)
	}
	last := func() string {
		for i, err := range eng.Schedules(ctx, "reports") {
			if err != nil {
				log.Fatal(err)
			}
			if i.Last != nil {
				return i.Last.ID
			}
		}
		return ""
	}
	for last() == "" {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println(report.Handle(eng, last()).Result(ctx))

	s.Overlap = engine.OverlapAllow
	if err := eng.PutSchedule(ctx, s, ann); err != nil { // the same ID: it is replaced
		log.Fatal(err)
	}
	asked, err := eng.Trigger(ctx, "reports", ann)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Handle(eng, asked.ID).Result(ctx))
	// Output:
	// north, at the whole second: true <nil>
	// north, because somebody asked <nil>
}

// The times of a schedule, around the night in which the clocks in Berlin are set forward.
func ExampleSchedule_next() {
	s := engine.Schedule{Cron: []string{"30 2 * * *"}, Zone: "Europe/Berlin"}
	times, err := s.Next(time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC), 2)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range times {
		fmt.Println(t)
	}
	// Output:
	// 2026-03-29 01:00:00 +0000 UTC
	// 2026-03-30 00:30:00 +0000 UTC
}
