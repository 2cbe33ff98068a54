// Schedule sends a report every night. So that you can watch it, a night takes two seconds here.
//
//	go run ./examples/schedule
//
// It prints three reports, then one that is asked for, and ends. With -db it keeps its state in a file.
// Kill it, wait, and start it again: the last report that was due meanwhile is sent late, and the
// others are not.
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
	_ "time/tzdata" // so that the zone is known on every machine

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/sqlite"
)

// In a service, the schedule would be this one. The example only prints its next times.
var everyNight = engine.Schedule{
	ID:    "nightly",
	Start: nightly.Request("", "shop"),
	Cron:  []string{"30 2 * * *"},
	Zone:  "Europe/Berlin",
}

func main() {
	db := flag.String("db", "", "the file that keeps the state; a temporary one if empty")
	night := flag.Duration("night", 2*time.Second, "how long a night takes, in whole seconds")
	flag.Parse()
	if err := run(context.Background(), *db, *night); err != nil {
		log.Fatal("schedule: ", err)
	}
}

func run(ctx context.Context, db string, night time.Duration) (err error) {
	if err := preview(); err != nil {
		return err
	}
	if db == "" {
		dir, err := os.MkdirTemp("", "weft-schedule-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		db = filepath.Join(dir, "schedule.db")
	} else {
		fmt.Printf("Kill me at any moment, with kill -9 %d, and start me again.\n\n", os.Getpid())
	}
	store, err := sqlite.Open(db, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	eng, err := engine.New(engine.Config{Storage: store, Workflows: []engine.Definition{nightly}, Logger: slog.New(slog.DiscardHandler)})
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

	short := everyNight
	short.Cron, short.Zone, short.Every = nil, "", night
	ann := engine.Actor{Name: "ann", Reason: "the shop wants to know"}
	if err := eng.PutSchedule(ctx, short, ann); err != nil { // every process of a service does this when it starts
		return err
	}
	for seen := ""; ; {
		i, err := state(ctx, eng)
		if err != nil {
			return err
		}
		if i.Last == nil || i.Last.ID == seen {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		seen = i.Last.ID
		report, err := nightly.Handle(eng, seen).Result(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("report %d, %d missed: %s\n", i.Started, i.Missed, report)
		if i.Started >= 3 {
			break
		}
	}
	asked, err := eng.Trigger(ctx, short.ID, engine.Actor{Name: "ben", Reason: "the boss wants one now"})
	if err != nil {
		return err
	}
	report, err := nightly.Handle(eng, asked.ID).Result(ctx)
	if err != nil {
		return err
	}
	fmt.Println("asked for:", report)
	return eng.DeleteSchedule(ctx, short.ID, ann)
}

// preview prints the times around the night in which the clocks are set forward.
func preview() error {
	times, err := everyNight.Next(time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC), 2)
	if err != nil {
		return err
	}
	berlin, err := time.LoadLocation(everyNight.Zone)
	if err != nil {
		return err
	}
	for _, t := range times {
		fmt.Println("half past two in Berlin:", t.In(berlin).Format("Mon 2 Jan 15:04 MST"))
	}
	return nil
}

// state returns the state of the schedule.
func state(ctx context.Context, eng *engine.Engine) (engine.ScheduleInfo, error) {
	for i, err := range eng.Schedules(ctx, everyNight.ID) {
		return i, err
	}
	return engine.ScheduleInfo{}, engine.ErrNotFound
}
