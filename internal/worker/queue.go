package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/admission"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/trail"
	"github.com/weft-go/weft/storage"
)

// queueLines is the duty to admit runs from the lines of queues.
type queueLines struct {
	incarnation *Incarnation
	trails      map[string]*trail.Trail // by the name of the queue
}

// look admits runs from the queues that this engine serves.
func (d *queueLines) look(ctx context.Context) (next time.Duration, _ error) {
	var errs []error
	next = d.incarnation.Worker.PollInterval
	for _, q := range d.incarnation.Worker.Served {
		opens, err := d.serve(ctx, q)
		next = min(next, opens)
		if err != nil {
			errs = append(errs, fmt.Errorf("queue %q: %w", q.Name, err))
		}
	}
	return next, errors.Join(errs...)
}

// serve admits runs from the front of the line, as many as the queue's limits and the room
// in memory allow. It returns the time until the next look is useful.
func (d *queueLines) serve(ctx context.Context, q weft.Queue) (opens time.Duration, _ error) {
	l := d.incarnation
	door := admission.New(q, l.Worker.Store, l.Worker.Now)
	crew := newCrew(l)
	defer func() {
		crew.wait()
		opens = door.Opens()
	}()
	line := keys.LineOf(q.Name)
	line.Limit = atOnce // often only the first few entries are needed
	way := d.trails[q.Name]
	if way == nil {
		way = new(trail.Trail)
		d.trails[q.Name] = way
	}
	looked := time.Now()
	p := way.Look(looked, l.Worker.PollInterval, line.End)
	if p.Start != nil {
		line.Start = p.Start
	}
	defer way.Passed(p, looked)
	for found, err := range l.claimableIn(ctx, line, p) {
		if err != nil {
			return 0, err
		}
		t, err := door.Next(ctx, crew.wait)
		if err != nil {
			return 0, err
		}
		if t == nil {
			return 0, nil // a later look admits it
		}
		found.why, found.ticket = checkpoint.HandedOver, t
		if ok, err := crew.claim(ctx, found); !ok {
			return 0, err
		}
	}
	return 0, nil
}

// turnAway returns the change that cancels wf, which waits in a line or is delayed, and has not begun. next is wf with the
// cancellation request. Its function is never called, because it has nothing to clean up.
func (e *Worker) turnAway(ctx context.Context, wf, next *journal.Workflow) (*Changing, error) {
	out := &journal.Output{Generation: wf.Generation, Status: checkpoint.StatusCancelled}
	where := fmt.Sprintf("in queue %q", wf.Queue)
	if wf.Delayed() {
		where = "before its start at " + journal.Time(wf.StartAt).Format(time.RFC3339)
	}
	payload.FailureOf(fmt.Errorf("%w %s", weft.ErrCancelled, where), "", nil).Onto(out)
	change, _, err := e.Ended(ctx, &journal.Hold{Workflow: wf}, Ending{
		Next:   next,
		Output: out,
		Events: []checkpoint.Event{{Kind: checkpoint.KindAsked, By: next.Cancel.By, Why: next.Cancel.Reason}},
	})
	return change, err
}

// cancelDelayed cancels a workflow that is delayed and was asked to stop.
func (e *Worker) cancelDelayed(ctx context.Context, id string) error {
	err := e.Change(ctx, id, Change{
		Name: "cancel",
		Landed: func(_ context.Context, wf *journal.Workflow) (bool, error) {
			return wf.Status.Terminal(), nil
		},
		Decide: func(ctx context.Context, wf *journal.Workflow) (*Changing, error) {
			if !wf.Delayed() || wf.Cancel == nil || wf.Status != checkpoint.StatusPending {
				return nil, nil
			}
			next := *wf
			return e.turnAway(ctx, wf, &next)
		},
	})
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrFutureFormat) {
		return nil // purged, or of a newer release by now
	}
	return err
}
