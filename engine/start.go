package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// StartWorkflow starts the workflow that r describes. See Workflow.Start.
func (e *Engine) StartWorkflow(ctx context.Context, r *StartRequest) (Info, error) {
	s, err := e.prepare(ctx, r)
	if err != nil {
		return Info{}, err
	}
	call := waiting(ctx, "start of workflow", s.wf.ID)
	info, err := s.start(call)
	return info, call.explain(err)
}

// start writes the start, or returns the workflow that already has the id.
func (s *starting) start(ctx context.Context) (Info, error) {
	e := s.eng
	if err := e.refused(); err != nil {
		return Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	l := e.driver(s.wf)
	if l != nil {
		defer l.running.Done()
		defer e.arrived()
		defer l.beginStart(s.wf.ID)()
	}
	ctx, s.giveUp = context.WithCancelCause(ctx)
	defer s.giveUp(nil)
	for range mostTries {
		s.incarnation = l
		info, again, err := s.try(ctx)
		if !again {
			return info, err
		}
	}
	return Info{}, contradiction(keys.Workflow(s.wf.ID))
}

// driver returns the incarnation that would execute wf, after joining it, or nil if there
// is none or it has no room.
func (e *Engine) driver(wf *checkpoint.Workflow) *incarnation {
	if !e.mayDrive(wf) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.incarnation == nil {
		return nil
	}
	if !e.hasRoom(true) || !e.incarnation.join() {
		return nil
	}
	e.capacity.coming++
	return e.incarnation
}

// fits returns the definition with which this engine may execute wf, a claimed run or one
// to be started. If the engine may not execute it, fits returns nil and the reason.
func (e *Engine) fits(wf *checkpoint.Workflow) (def *definition, why string) {
	if def = e.workflows[wf.Type]; def == nil {
		return nil, "this engine has no workflow of this name"
	}
	if wf.Deployment != "" && wf.Deployment != e.config.Deployment {
		return nil, fmt.Sprintf("it stays on deployment %q", wf.Deployment)
	}
	return def, ""
}

// mayDrive reports whether this engine may claim wf in its current state.
func (e *Engine) mayDrive(wf *checkpoint.Workflow) bool {
	def, _ := e.fits(wf)
	return def != nil && !wf.Waits && e.serves(wf.Queue)
}

// A starting is a start in progress.
type starting struct {
	eng         *Engine
	incarnation *incarnation // that will execute it; nil: a poll will find it
	wf          *checkpoint.Workflow
	on          *checkpoint.Workflow // the tombstone that it replaces
	input       payload
	under       *activeRecord // the deployment on which a Pinned workflow starts; nil: any

	first    *signal.Incoming // accepted in the same commit; nil: none
	accepted signal.Accepted  // the answer to first, if there is one

	giveUp context.CancelCauseFunc
}

// prepare validates and encodes a start before anything is written.
func (e *Engine) prepare(ctx context.Context, r *StartRequest) (*starting, error) {
	if err := checkName("workflow name", r.Workflow, keys.MaxName); err != nil {
		return nil, err
	}
	id := r.ID
	if id == "" {
		id = "wrun_" + e.newID()
	}
	if err := checkID(id); err != nil {
		return nil, err
	}
	queue := r.Options.Queue
	if queue != "" {
		if err := checkName("queue", queue, keys.MaxName); err != nil {
			return nil, err
		}
	}
	input, digest, err := e.codecs.identify(ctx, r.Input)
	if err != nil {
		return nil, fmt.Errorf("%w: input of %s %q: %w", ErrInvalid, r.Workflow, id, err)
	}
	if len(input.data) > e.maxPayload {
		return nil, invalid("input of workflow", id, fmt.Sprintf("has %d bytes, at most %d", len(input.data), e.maxPayload))
	}
	return &starting{
		eng:   e,
		wf:    &checkpoint.Workflow{ID: id, Generation: e.newID(), Type: r.Workflow, Digest: digest, Queue: queue, Waits: queue != ""},
		input: input,
	}, nil
}

// try writes the start on the assumption that the id is free, or has the tombstone s.on. It
// reports whether to try again because that was wrong.
func (s *starting) try(ctx context.Context) (info Info, again bool, err error) {
	if err := s.place(ctx); err != nil {
		info, free, there := s.meet(ctx) // a repeated start gets its answer all the same
		if !free {
			return info, false, there
		}
		return Info{}, false, err
	}
	w, err := s.decide()
	if err != nil {
		return Info{}, false, err
	}
	a, err := s.accept(w)
	if err != nil {
		return Info{}, false, err
	}
	err = checkpoint.Settle(ctx, s.eng.store, w.Batch, s.unsure, func(ctx context.Context) (bool, error) {
		wf, err := checkpoint.Load(ctx, s.eng.store, s.wf.ID)
		if errors.Is(err, storage.ErrNotFound) {
			return false, nil
		}
		return err == nil && wf.Generation == s.wf.Generation, err
	})
	switch {
	case err == nil:
		s.begun(w)
		s.accepted = a
		return infoOf(w.After), false, nil
	case errors.Is(err, storage.ErrConflict):
		if s.first != nil {
			a, earlier, err := s.eng.earlier(ctx, s.first)
			if s.accepted = a; earlier || err != nil {
				return Info{}, false, err
			}
		}
		return s.meet(ctx)
	}
	if s.incarnation != nil && !errors.Is(err, storage.ErrInvalidBatch) {
		s.incarnation.Doubt(s.wf.ID)
	}
	return Info{}, false, fmt.Errorf("engine: start %q: %w", s.wf.ID, err)
}

// decide returns the whole start as one batch.
func (s *starting) decide() (*checkpoint.Write, error) {
	now := s.eng.now()
	owner, floor := "", uint64(0)
	if s.incarnation != nil {
		owner, floor = s.incarnation.name, s.incarnation.Least()
	}
	wf := *s.wf
	under := s.bind(&wf)
	w, err := checkpoint.Create(&wf, s.on, owner, entryOf(s.wf, now, s.wf.Generation), floor, now)
	if err != nil {
		return nil, err
	}
	w.Batch.If = append(w.Batch.If, under...)
	in, err := checkpoint.PutInput(s.wf.ID, &checkpoint.Input{Generation: s.wf.Generation, Codec: s.input.codec, Data: s.input.data})
	if err != nil {
		return nil, err
	}
	row, err := indexRow(s.wf)
	w.Batch.If = append(w.Batch.If, storage.Absent(in.Key)) // an input without a workflow record is damage
	w.Batch.Ops = append(w.Batch.Ops, in, row)
	return w, err
}

// entryOf returns the key of the entry by which an unclaimed wf is found: in the line of
// its queue, or in the list of unclaimed workflows.
func entryOf(wf *checkpoint.Workflow, now time.Time, nonce string) []byte {
	if wf.Queue != "" {
		return keys.Line(wf.Queue, now, wf.ID)
	}
	return keys.TodoNow(0, now, wf.ID, nonce)
}

// accept adds the acceptance of the first signal to the start.
func (s *starting) accept(w *checkpoint.Write) (signal.Accepted, error) {
	if s.first == nil {
		return signal.Accepted{}, nil
	}
	d, err := signal.Accept([]*signal.Incoming{s.first}, s.wf.Generation, nil, s.eng.now())
	if err != nil {
		return signal.Accepted{}, err
	}
	w.Batch.If = append(w.Batch.If, d.Batch.If...)
	w.Batch.Ops = append(w.Batch.Ops, d.Batch.Ops...)
	return d.Arrived[0].Answer, nil
}

// begun executes the started workflow, or makes the engine look for it.
func (s *starting) begun(w *checkpoint.Write) {
	if s.incarnation != nil {
		def, _ := s.eng.fits(s.wf)
		x := newExecution(s.incarnation, def, w.Hold())
		x.input = s.input
		if s.first == nil {
			x.address = address{wf: w.After}
		}
		s.incarnation.Launch(x)
		return
	}
	s.eng.PokePoll()
}

// meet handles the case that the id of the start is in use. It returns the workflow that
// has it if that is the same start, or reports whether to try again.
func (s *starting) meet(ctx context.Context) (info Info, again bool, err error) {
	there, err := checkpoint.Load(ctx, s.eng.store, s.wf.ID)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		s.on = nil
		_, err := s.eng.orphaned(ctx, s.wf.ID)
		return Info{}, err == nil || errors.Is(err, ErrNotFound), err
	case err != nil:
		return Info{}, false, fmt.Errorf("engine: start %q: %w", s.wf.ID, err)
	case there.Tombstone():
		s.on = there
		err := checkpoint.Sweep(ctx, s.eng.store, there)
		return Info{}, err == nil || errors.Is(err, storage.ErrConflict), err
	case there.Type == s.wf.Type && bytes.Equal(there.Digest, s.wf.Digest):
		return infoOf(there), false, nil
	case there.Type != s.wf.Type:
		return Info{}, false, fmt.Errorf("%w: %q is a run of workflow %q, not of %q", ErrExists, there.ID, there.Type, s.wf.Type)
	}
	return Info{}, false, fmt.Errorf("%w: %q was started with another input", ErrExists, there.ID)
}

func (s *starting) unsure(err error) {
	if s.incarnation != nil {
		s.incarnation.Unsure("start", s.wf.ID)(err)
	} else {
		s.eng.log.Warn("weft: outcome of a start is unknown, trying again", "workflow", s.wf.ID, "error", err)
	}
	if err := s.eng.refused(); err != nil {
		s.giveUp(err)
	} else if s.incarnation != nil && s.incarnation.ctx.Err() != nil {
		s.giveUp(context.Cause(s.incarnation.ctx))
	}
}

// pokePoll makes the engine poll now.
func (e *Engine) PokePoll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.incarnation != nil {
		e.incarnation.PokeNow()
	}
}

// row is a workflow's entry in the list of all workflows: ix:{generation}.
type row struct {
	ID string `cbor:"1,keyasint"`
}

func indexRow(wf *checkpoint.Workflow) (storage.Op, error) {
	key := keys.Index(wf.Generation)
	raw, err := record.Seal(key, checkpoint.Version, &row{wf.ID}, nil)
	return storage.Put(key, raw), err
}
