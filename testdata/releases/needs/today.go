package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/childproc"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/testdata/releases/shop"
)

// todayEnv is the variable that makes this program an engine of this release, for one turn.
const todayEnv = "WEFT_RELEASES_TODAY"

// A plan tells an engine of this release what to do in its turn.
type plan struct {
	Store     string
	Began     time.Time // of all turns
	Turn      int
	Open      []int  // deliveries in progress
	Next      int    // the first number that is free
	Delivered string // the run of the schedule that waits which the release before has ended last
	Last      bool   // begin nothing new, and end when all has ended
}

// A kind of delivery, by what happens to it.
type kind int

const (
	approved  kind = iota // its client approves it
	inBulk                // a bulk operation approves it
	updated               // its client calls an update, and approves it
	newer                 // it opens a hook, and writes to a stream
	delayed               // it begins later; the release before approves it meanwhile
	cancelled             // it is to begin after all turns; the release before cancels it
	kinds
)

func kindOf(n int) kind     { return kind(n) % kinds }
func delivery(n int) string { return fmt.Sprintf("delivery-%d", n) }

const (
	each  = "each"  // the schedule that misses no time
	waits = "waits" // the schedule that waits for the end of the run before
)

var (
	note    = &engine.Update[int, string]{Name: "note"}
	stage   = &engine.Value[string]{Name: "stage"}
	whoever = engine.Actor{Name: "releases", Reason: "a test"}
)

// more is what only this release does in a delivery.
func more(run *engine.Run, t shop.Task) error {
	if err := stage.Set(run, "begun"); err != nil {
		return err
	}
	if err := note.Handle(run, nil, func(run *engine.Run, n int) (string, error) {
		noted, err := engine.Step(run, "note", func(context.Context) (string, error) {
			time.Sleep(rand.N(20 * time.Millisecond))
			return fmt.Sprint("noted ", n), nil
		})
		return noted, errors.Join(err, run.Sleep(50*time.Millisecond))
	}); err != nil || t.Kind != shop.Newer {
		return err
	}
	if _, err := paid.Open(run, nil); err != nil {
		return err
	}
	_, err := speak.Do(run, "a word")
	return err
}

// today is an engine of this release, and the clients of one turn.
type today struct {
	plan
	eng *engine.Engine
}

// turn is the main function of an engine of this release. It ends when it is killed or, in the last turn, when all
// has ended.
func turn(in io.Reader) int {
	var p plan
	return childproc.Main(in, &p, func(ctx context.Context) error {
		s, err := shop.Open(ctx, p.Store)
		if err != nil {
			return err
		}
		defer s.Close()
		eng, err := engine.New(shop.Quick(engine.Config{
			Storage: s, Workflows: shop.Delivery(more), Deployment: deployment,
			SignalIDRetention: 100 * time.Millisecond, // so that answers expire while the release before has its turn
			Logger:            slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		}))
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		ran := make(chan error, 1)
		go func() { ran <- eng.Run(ctx) }()
		err = (&today{plan: p, eng: eng}).work(ctx)
		stop()
		return errors.Join(err, <-ran)
	})
}

func (d *today) work(ctx context.Context) error {
	if !d.Last {
		if err := d.put(ctx); err != nil {
			return err
		}
	}
	if d.Turn == 1 {
		if err := d.untilItWaits(ctx); err != nil {
			return err
		}
	}
	fmt.Println("works")
	var clients sync.WaitGroup
	next := make(chan int)
	for range 12 {
		clients.Go(func() {
			for n := range next {
				ended, err := d.client(ctx, n)
				switch {
				case err != nil:
					fmt.Printf("trouble with %s: %v\n", delivery(n), err)
				case ended:
					fmt.Println("ended", n)
				}
			}
		})
	}
	for _, n := range d.Open {
		next <- n
	}
	for n := d.Next; !d.Last; n++ {
		fmt.Println("open", n)
		next <- n
	}
	close(next)
	clients.Wait()
	return d.finish(ctx)
}

// put puts the schedules, and starts a bulk operation.
func (d *today) put(ctx context.Context) error {
	s := engine.Schedule{ID: each, Every: time.Second, From: d.Began, Overlap: engine.OverlapAllow, Missed: engine.MissedAll,
		Start: &engine.StartRequest{Workflow: shop.Name, Input: shop.Task{Kind: shop.Scheduled}}}
	if err := d.eng.PutSchedule(ctx, s, whoever); err != nil {
		return err
	}
	s.ID, s.Overlap, s.Missed = waits, engine.OverlapWait, engine.MissedLast
	s.Start = &engine.StartRequest{Workflow: shop.Name, Input: shop.Task{Kind: shop.Waits}}
	if err := d.eng.PutSchedule(ctx, s, whoever); err != nil {
		return err
	}
	return d.approveAll(ctx, fmt.Sprint("bulk-", d.Turn), engine.Filter{Workflow: shop.Name, Status: checkpoint.StatusRunning})
}

// approveAll starts a bulk operation, which takes a while.
func (d *today) approveAll(ctx context.Context, id string, which engine.Filter) error {
	return d.eng.StartBulk(ctx, id, engine.Bulk{
		Filter: which, Do: engine.BulkSignal, Signal: signal.Message{Name: shop.Approved.Name, Payload: true},
		Rate: activity.Rate{Count: 40, Per: time.Second},
	}, whoever)
}

// client starts a delivery, and does with it what its kind says. Whatever it did in an earlier turn is repeated.
func (d *today) client(ctx context.Context, n int) (ended bool, err error) {
	id, task, o := delivery(n), shop.Task{Kind: shop.Plain}, engine.StartOptions{}
	switch kindOf(n) {
	case newer:
		task.Kind, o.Deployment = shop.Newer, deployment // which it needs from its start on
	case delayed:
		task.At = time.Now().Add(1500 * time.Millisecond)
		o.StartAt = task.At
	case cancelled:
		o.StartAt = d.Began.Add(time.Hour)
	}
	_, err = d.eng.StartWorkflow(ctx, &engine.StartRequest{Workflow: shop.Name, ID: id, Input: task, Options: o})
	if err != nil && !errors.Is(err, engine.ErrExists) { // with an earlier time
		return false, fmt.Errorf("start: %w", err)
	}
	switch kindOf(n) {
	case inBulk:
		if !d.Last {
			return false, nil
		}
		if err := d.approveAll(ctx, "bulk-of-"+id, engine.Filter{IDPrefix: id}); err != nil {
			return false, fmt.Errorf("bulk: %w", err)
		}
		return true, d.result(ctx, id)
	case newer:
		if !d.Last && n/int(kinds)%2 == 0 {
			return false, nil // it stays open, with its hook
		}
	case cancelled:
		i, err := d.eng.Describe(ctx, id)
		if err == nil && i.Cancel == nil {
			if !d.Last {
				return false, nil // the release before does it
			}
			err = d.eng.Cancel(ctx, id, whoever)
		}
		if err != nil {
			return false, err
		}
		at, done := context.WithTimeout(ctx, 45*time.Second)
		defer done()
		if err := d.eng.Result(at, id, shop.Name, nil); !errors.Is(err, engine.ErrCancelled) {
			return false, fmt.Errorf("it was cancelled before it began: %v", err)
		}
		return true, nil
	case updated, delayed:
		// A bulk may have approved the delivery before. It ends, if no update is in progress.
		noted, err := note.Call(ctx, d.eng, id, n, &engine.UpdateOptions{ID: "note"})
		switch {
		case errors.Is(err, engine.ErrTerminal):
		case err != nil || noted != fmt.Sprint("noted ", n):
			return false, fmt.Errorf("update: %q, %w", noted, err)
		default:
			fmt.Println("updated", n)
		}
	}
	_, err = shop.Approved.Send(ctx, d.eng, id, true, &signal.Options{ID: "approval"})
	if err != nil && !errors.Is(err, engine.ErrTerminal) { // approved before
		return false, fmt.Errorf("approve: %w", err)
	}
	return true, d.result(ctx, id)
}

// result waits until a delivery is sent. If it is held because processes died too often while they executed it, it
// is resumed, as by an operator.
func (d *today) result(ctx context.Context, id string) error {
	for {
		i, err := d.eng.Describe(ctx, id)
		if err != nil {
			return fmt.Errorf("describe: %w", err)
		}
		for _, a := range i.Attention {
			if a.Reason == engine.ReasonUnregistered {
				continue // this engine has lost its lease, as on a busy machine, and comes back
			}
			if a.Reason != engine.ReasonNoProgress {
				return fmt.Errorf("held: %s: %s", a.Reason, a.Detail)
			}
			if err := d.eng.Resume(ctx, id, whoever); err != nil && !errors.Is(err, engine.ErrNotApplicable) {
				return fmt.Errorf("resume: %w", err)
			}
		}
		var sent string
		at, done := context.WithTimeout(ctx, time.Second)
		err = d.eng.Result(at, id, shop.Name, &sent)
		done()
		switch {
		case err == nil && sent != shop.Sent:
			return fmt.Errorf("the result is %q", sent)
		case err == nil:
			return nil
		case !errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("result: %w", err)
		}
	}
}

// finish checks that the schedules and the bulk operations have done all that they were to do.
func (d *today) finish(ctx context.Context) error {
	if err := d.finishWaits(ctx); err != nil {
		return fmt.Errorf("schedule %s: %w", waits, err)
	}
	if err := d.finishEach(ctx); err != nil {
		return fmt.Errorf("schedule %s: %w", each, err)
	}
	for done := false; !done; {
		done = true
		for b, err := range d.eng.Bulks(ctx) {
			if err != nil {
				return err
			}
			done = done && !b.EndedAt.IsZero()
		}
		d.pause("bulk operations")
	}
	for i, err := range d.eng.List(ctx, engine.Filter{}) {
		if err != nil {
			return err
		}
		if !i.Status.Terminal() || i.Status == checkpoint.StatusFailed {
			return fmt.Errorf("workflow %s is %s at the end", i.ID, i.Status)
		}
	}
	return nil
}

// pause says what is waited for, so that the parent does not take the process for stuck.
func (d *today) pause(what string) {
	fmt.Println("waits for", what)
	time.Sleep(100 * time.Millisecond)
}

func (d *today) find(ctx context.Context, id string) (engine.ScheduleInfo, error) {
	for s, err := range d.eng.Schedules(ctx, id) {
		return s, err
	}
	return engine.ScheduleInfo{}, errors.New("it is not there")
}

// untilItWaits waits until the schedule that waits has begun a run, and its next time has passed, so that it looks
// again a minute later.
func (d *today) untilItWaits(ctx context.Context) error {
	for {
		s, err := d.find(ctx, waits)
		if err != nil || s.Last != nil && time.Since(s.Last.At) > 1500*time.Millisecond {
			return err
		}
		d.pause("the first run of a schedule")
	}
}

// finishWaits: the release before tells no schedule of the end of its run. It goes on within a minute all the same.
func (d *today) finishWaits(ctx context.Context) error {
	s, err := d.find(ctx, waits)
	for ; err == nil && (s.Last == nil || s.Last.ID == d.Delivered); s, err = d.find(ctx, waits) {
		d.pause("the next run of a schedule")
	}
	if err != nil {
		return err
	}
	if d.Delivered != "" {
		i, err := d.eng.Describe(ctx, d.Delivered)
		if err != nil {
			return err
		}
		after := s.Last.StartedAt.Sub(i.EndedAt)
		if after > 90*time.Second { // a minute, on a machine that is busy with something else
			return fmt.Errorf("the release before has ended %s, and %s began %v later, want a minute at most", i.ID, s.Last.ID, after)
		}
		fmt.Println("went on", after.Round(time.Second))
	}
	if err := d.eng.DeleteSchedule(ctx, waits, whoever); err != nil {
		return err
	}
	if _, err := shop.Released.Send(ctx, d.eng, s.Last.ID, true, &signal.Options{ID: "release"}); err != nil && !errors.Is(err, engine.ErrTerminal) {
		return err
	}
	return d.result(ctx, s.Last.ID)
}

// finishEach: each second has its run, also those in which the release before had its turn.
func (d *today) finishEach(ctx context.Context) error {
	s, err := d.find(ctx, each)
	for ; err == nil && s.Next.Before(time.Now()); s, err = d.find(ctx, each) {
		d.pause("the times that have passed")
	}
	if err != nil {
		return err
	}
	if err := d.eng.DeleteSchedule(ctx, each, whoever); err != nil {
		return err
	}
	seconds := int(s.Last.At.Sub(d.Began) / time.Second)
	times, err := s.Schedule.Next(d.Began.Add(-1), seconds)
	if err != nil {
		return err
	}
	fired := 0
	for _, at := range times {
		err := d.result(ctx, s.Schedule.RunID(at))
		if fired == 0 && errors.Is(err, engine.ErrNotFound) {
			continue // it had passed when the schedule was put
		}
		if err != nil {
			return fmt.Errorf("at %v: %w", at, err)
		}
		fired++
	}
	fmt.Println("fired", fired)
	return nil
}
