package activity_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// errDeclined is the bank's answer when it declines.
var errDeclined = errors.New("card declined")

// A charge is retried while the bank is busy, and not when it declines.
func ExampleActivity() {
	charge := &activity.Activity[int, string]{
		Name:    "charge",
		Errors:  []error{errDeclined},
		Retry:   activity.Retry{MaxAttempts: 3, Backoff: time.Millisecond},
		Timeout: 10 * time.Second,
		Run: func(ctx context.Context, cents int) (string, error) {
			info := activity.InfoFrom(ctx)
			switch {
			case cents > 100_000:
				return "", activity.Permanent(fmt.Errorf("%d cents: %w", cents, errDeclined))
			case info.Attempt == 1:
				return "", errors.New("the bank is busy")
			}
			return fmt.Sprintf("receipt for %s, attempt %d", info.WorkflowID, info.Attempt), nil
		},
	}
	checkout := &engine.Workflow[int, string]{
		Name: "checkout",
		Func: func(run *engine.Run, cents int) (string, error) {
			receipt, err := charge.Do(run, cents)
			if errors.Is(err, errDeclined) {
				return "asked for another card", nil
			}
			return receipt, err
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:    new(memory.Store),
		Workflows:  []engine.Definition{checkout},
		Activities: []activity.Definition{charge}, // checked here, before anything runs
		Logger:     slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	go eng.Run(ctx)
	defer eng.Close()
	defer stop()

	for i, cents := range []int{4900, 490_000} {
		h, err := checkout.Start(ctx, eng, fmt.Sprintf("order-%d", i+1), cents)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(h.Result(ctx))
	}
	// Output:
	// receipt for order-1, attempt 2 <nil>
	// asked for another card <nil>
}

// A flight is cancelled if no hotel is available.
func ExampleActivity_compensate() {
	flight := &activity.Activity[string, string]{
		Name: "book flight",
		Run: func(_ context.Context, to string) (string, error) {
			fmt.Println("flight to", to, "booked")
			return "LX-7", nil
		},
		Compensate: func(ctx context.Context, to, code string) error {
			fmt.Println("flight", code, "to", to, "cancelled:", activity.InfoFrom(ctx).Phase)
			return nil
		},
	}
	hotel := &activity.Activity[string, string]{
		Name: "book hotel",
		Run: func(_ context.Context, in string) (string, error) {
			return "", activity.Permanent(errors.New("no room in " + in))
		},
	}
	trip := &engine.Workflow[string, string]{
		Name: "trip",
		Func: func(run *engine.Run, to string) (string, error) {
			code, err := flight.Do(run, to)
			if err != nil {
				return "", err
			}
			room, err := hotel.Do(run, to)
			return code + " " + room, err
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: []engine.Definition{trip},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	go eng.Run(ctx)
	defer eng.Close()
	defer stop()

	h, err := trip.Start(ctx, eng, "trip-7", "Rome")
	if err != nil {
		log.Fatal(err)
	}
	_, err = h.Result(ctx)
	fmt.Println(err)
	// Output:
	// flight to Rome booked
	// flight LX-7 to Rome cancelled: compensate
	// engine: workflow trip "trip-7": activity book hotel: attempt 1: no room in Rome
}

// Transfers of one account wait for each other, even in different workflows; those of
// other accounts do not.
func ExampleActivity_resourceScope() {
	type transfer struct {
		Account string
		Cents   int
	}
	balance := map[string]int{"ann": 100, "bob": 100}
	withdraw := &activity.Activity[transfer, int]{
		Name:          "withdraw",
		ResourceScope: func(t transfer) string { return "account/" + t.Account },
		MaxConcurrent: 10,
		Rate:          activity.Rate{Count: 100, Per: time.Second},
		Run: func(_ context.Context, t transfer) (int, error) {
			left := read(balance, t.Account) - t.Cents
			if left < 0 {
				return 0, activity.Permanent(errDeclined)
			}
			time.Sleep(time.Millisecond) // other transfers of this account would read a stale balance
			write(balance, t.Account, left)
			return left, nil
		},
	}
	shopping := &engine.Workflow[string, int]{
		Name: "shopping",
		Func: func(run *engine.Run, account string) (bought int, err error) {
			attempts, err := engine.Map(run, "buy", 5, make([]int, 5), func(run *engine.Run, _ int) (int, error) {
				if _, err := withdraw.Do(run, transfer{account, 30}); err != nil {
					return 0, nil
				}
				return 1, nil
			})
			for _, n := range attempts {
				bought += n
			}
			return bought, err
		},
	}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:    new(memory.Store),
		Workflows:  []engine.Definition{shopping},
		Activities: []activity.Definition{withdraw},
		Logger:     slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	go eng.Run(ctx)
	defer eng.Close()
	defer stop()

	for _, account := range []string{"ann", "bob"} {
		h, err := shopping.Start(ctx, eng, account+"-1", account)
		if err != nil {
			log.Fatal(err)
		}
		bought, err := h.Result(ctx)
		fmt.Println(account, "bought", bought, "and has", read(balance, account), err)
	}
	// Output:
	// ann bought 3 and has 10 <nil>
	// bob bought 3 and has 10 <nil>
}

// An import continues where the previous attempt stopped.
func ExampleHeartbeat() {
	pages := []string{"a", "b", "c", "d"}
	load := &activity.Activity[string, string]{
		Name:  "load",
		Retry: activity.Retry{Backoff: time.Millisecond},
		Run: func(ctx context.Context, file string) (string, error) {
			done, found := activity.Progress[int](ctx)
			fmt.Printf("attempt %d: %d pages are done, %v\n", activity.InfoFrom(ctx).Attempt, done, found)
			for ; done < len(pages); done++ {
				if err := activity.Heartbeat(ctx, done); err != nil {
					return "", err // told to stop
				}
				if done == 2 && !found {
					return "", errors.New("connection lost")
				}
			}
			return file + " is loaded", nil
		},
	}
	ingest := &engine.Workflow[string, string]{
		Name: "ingest",
		Func: func(run *engine.Run, file string) (string, error) { return load.Do(run, file) },
	}
	ctx, stop := context.WithCancel(context.Background())
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: []engine.Definition{ingest},
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	go eng.Run(ctx)
	defer eng.Close()
	defer stop()

	h, err := ingest.Start(ctx, eng, "file-1", "prices.csv")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(h.Result(ctx))
	// Output:
	// attempt 1: 0 pages are done, false
	// attempt 2: 2 pages are done, true
	// prices.csv is loaded <nil>
}

var books sync.Mutex

func read(balance map[string]int, account string) int {
	books.Lock()
	defer books.Unlock()
	return balance[account]
}

func write(balance map[string]int, account string, cents int) {
	books.Lock()
	defer books.Unlock()
	balance[account] = cents
}
