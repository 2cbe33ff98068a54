// Approval is a workflow that waits for the first of several events: one answer or
// another, a time limit, or a cancellation request. If nobody answers, it asks the
// boss's boss.
//
//	go run ./examples/approval
//
// Five expenses are decided in parallel, each in another way, and the program ends when
// all are decided. With -db it keeps its history in a file. Kill it at any moment, with
// Ctrl-C or with kill -9, and start it again: it continues.
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
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/sqlite"
)

func main() {
	db := flag.String("db", "", "the file that keeps the history; a temporary one if empty")
	wait := flag.Duration("wait", 2*time.Second, "how long somebody has to answer")
	flag.Parse()
	if err := run(context.Background(), *db, *wait); err != nil {
		log.Fatal("approval: ", err)
	}
}

func run(ctx context.Context, db string, wait time.Duration) (err error) {
	if db == "" {
		dir, err := os.MkdirTemp("", "weft-approval-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		db = filepath.Join(dir, "approval.db")
	} else {
		fmt.Printf("Kill me at any moment, with kill -9 %d, and start me again: it goes on from %s.\n\n", os.Getpid(), db)
	}
	store, err := sqlite.Open(db, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	o := newOffice()
	eng, err := engine.New(engine.Config{
		Storage:   store,
		Workflows: []engine.Definition{o.approve},
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	o.door = eng
	ctx, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() {
		defer stop() // what waits for a result ends, too
		ran <- eng.Run(ctx)
	}()
	defer func() { stop(); err = errors.Join(err, <-ran) }()

	var handles []*engine.Handle[Decision]
	for _, e := range []Expense{
		{ID: "train", Cents: 4900, Boss: "ann", Wait: wait},
		{ID: "yacht", Cents: 4900000, Boss: "ann", Wait: wait},
		{ID: "chair", Cents: 19900, Boss: "ben", Wait: wait},
		{ID: "plant", Cents: 2900, Boss: "cem", Wait: wait},
		{ID: "lunch", Cents: 1200, Boss: "cem", Wait: 1000 * wait},
	} {
		h, err := o.approve.Start(ctx, eng, e.ID, e)
		if err != nil {
			return err
		}
		handles = append(handles, h)
	}
	if err := withdraw(ctx, handles[4], "I ate at home"); err != nil {
		return err
	}
	for _, h := range handles {
		d, err := h.Result(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s\n", h.ID(), d)
	}
	return nil
}

// withdraw cancels an expense after a boss has been asked about it.
func withdraw(ctx context.Context, h *engine.Handle[Decision], why string) error {
	for {
		i, err := h.Describe(ctx)
		if err != nil {
			return err
		}
		if i.Status.Terminal() || len(i.Waiting) > 1 { // for a yes, a no, …
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	err := h.Cancel(ctx, engine.Actor{Reason: why})
	if errors.Is(err, engine.ErrTerminal) {
		return nil // it was cancelled before this process started
	}
	return err
}
