// Fanout is a workflow with parallel branches: it asks three suppliers for the price of
// each of twelve parts, four parts at a time, and takes the best offers.
//
//	go run ./examples/fanout
//
// With -db it keeps its history in a file. Kill it, with Ctrl-C or with kill -9, and
// start it again: it asks only for the answers that are missing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/storage/sqlite"
)

const (
	parts   = 12
	atATime = 4
)

var suppliers = []string{"Otto", "Ria", "Sem"}

// A Question is a request to a supplier.
type Question struct {
	Supplier string
	Part     int
}

// An Offer is a supplier's answer.
type Offer struct {
	Supplier string
	Part     int
	Cents    int
}

// A market has the suppliers, and counts the questions.
type market struct {
	pace time.Duration
	ask  *activity.Activity[Question, Offer]

	mu          sync.Mutex
	asked       int // by this process
	under, most int // way at a time
}

func newMarket(pace time.Duration) *market {
	m := &market{pace: pace}
	m.ask = &activity.Activity[Question, Offer]{Name: "ask", Run: m.answer}
	return m
}

// purchase is the workflow: a branch for each part, four at a time.
func (m *market) purchase() *engine.Workflow[int, []Offer] {
	return &engine.Workflow[int, []Offer]{
		Name: "purchase",
		Func: func(run *engine.Run, n int) ([]Offer, error) {
			list := make([]int, n)
			for i := range list {
				list[i] = i + 1
			}
			return engine.Map(run, "part", atATime, list, m.best)
		},
	}
}

// best is a branch: it asks all suppliers for one part, and waits for all. After a
// crash it does not ask again for the answers that it has.
func (m *market) best(run *engine.Run, part int) (Offer, error) {
	var answers []*future.Future[Offer]
	for _, s := range suppliers {
		answers = append(answers, m.ask.Go(run, Question{s, part}))
	}
	offers, err := engine.All(run, answers...)
	if err != nil {
		return Offer{}, err
	}
	best := offers[0]
	for _, o := range offers[1:] {
		if o.Cents < best.Cents {
			best = o
		}
	}
	return best, nil
}

// answer is the activity. Each supplier takes a different time.
func (m *market) answer(ctx context.Context, q Question) (Offer, error) {
	m.begin()
	defer m.end()
	fmt.Printf("  asking %s for part %d\n", q.Supplier, q.Part)
	select {
	case <-time.After(m.pace * time.Duration(len(q.Supplier)-2)):
	case <-ctx.Done():
		return Offer{}, context.Cause(ctx)
	}
	return Offer{q.Supplier, q.Part, 100 + (37*q.Part*int(q.Supplier[0]))%90}, nil
}

func (m *market) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	m.under++
	m.most = max(m.most, m.under)
}

func (m *market) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.under--
}

func main() {
	db := flag.String("db", "", "the file that keeps the history; a temporary one if empty")
	pace := flag.Duration("pace", 100*time.Millisecond, "how long the fastest supplier takes to answer")
	flag.Parse()
	if err := run(context.Background(), *db, *pace); err != nil {
		log.Fatal("fanout: ", err)
	}
}

func run(ctx context.Context, db string, pace time.Duration) (err error) {
	if db == "" {
		dir, err := os.MkdirTemp("", "weft-fanout-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		db = filepath.Join(dir, "fanout.db")
	} else {
		fmt.Printf("Kill me at any moment, with kill -9 %d, and start me again: it goes on from %s.\n\n", os.Getpid(), db)
	}
	store, err := sqlite.Open(db, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	m := newMarket(pace)
	purchase := m.purchase()
	eng, err := engine.New(engine.Config{
		Storage:   store,
		Workflows: []engine.Definition{purchase},
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() {
		defer stop() // what waits for a result ends, too
		ran <- eng.Run(ctx)
	}()
	defer func() { stop(); err = errors.Join(err, <-ran) }()

	h, err := purchase.Start(ctx, eng, "purchase-1", parts)
	if err != nil {
		return err
	}
	offers, err := h.Result(ctx)
	if err != nil {
		return err
	}
	sum := 0
	for _, o := range offers {
		fmt.Printf("part %d: %d cents, of %s\n", o.Part, o.Cents, o.Supplier)
		sum += o.Cents
	}
	fmt.Printf("%d parts for %d cents; this process asked %d times, %d at a time\n", len(offers), sum, m.asked, m.most)
	return nil
}
