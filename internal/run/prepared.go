package run

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/digest"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/namespace"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/storage"
)

// A PreparedStart is a start that is checked and encoded: of a workflow by a call, or of a child
// by its parent.
type PreparedStart struct {
	host     *Host
	Owner    Owner // that will execute it; nil: a poll will find it
	Workflow *journal.Workflow
	Replaces *journal.Workflow // the tombstone that it replaces
	input    payload.Payload
	under    *ActiveRecord // the deployment on which a Pinned workflow starts; nil: any

	Signalled bool // a signal is accepted, or an update admitted, in the same commit

	announced bool              // Events.Starting was told
	headers   map[string]string // of Config.Propagator
}

// Prepare validates and encodes a start before anything is written.
func (h *Host) Prepare(ctx context.Context, r *weft.StartRequest) (*PreparedStart, error) {
	s, err := h.prepare(r)
	if err != nil {
		return nil, err
	}
	input, identity, err := h.Codecs.Identify(ctx, r.Input)
	if err != nil {
		return nil, fmt.Errorf("%w: input of %s %q: %w", weft.ErrInvalid, r.Workflow, s.Workflow.ID, err)
	}
	return s, s.put(input, identity)
}

// PrepareEncoded is Prepare for an input that was encoded before. r.Input is ignored.
func (h *Host) PrepareEncoded(r *weft.StartRequest, input payload.Payload, identity digest.Digest) (*PreparedStart, error) {
	s, err := h.prepare(r)
	if err != nil {
		return nil, err
	}
	return s, s.put(input, identity)
}

// Input returns the encoded input of s.
func (s *PreparedStart) Input() payload.Payload { return s.input }

// put adds the input to s.
func (s *PreparedStart) put(input payload.Payload, identity digest.Digest) error {
	if len(input.Data) > s.host.MaxPayload {
		return payload.Invalid("input of workflow", s.Workflow.ID, fmt.Sprintf("has %d bytes, at most %d", len(input.Data), s.host.MaxPayload))
	}
	s.input = input
	s.Workflow.Digest, s.Workflow.Canonical = identity.Plain, identity.Canonical
	return nil
}

// prepare validates everything of a start but its input.
func (h *Host) prepare(r *weft.StartRequest) (*PreparedStart, error) {
	if err := payload.CheckName("workflow name", r.Workflow, keys.MaxName); err != nil {
		return nil, err
	}
	id := r.ID
	if id == "" {
		id = "wrun_" + h.NewID()
	}
	if err := payload.CheckID(id); err != nil {
		return nil, err
	}
	queue, deployment := r.Options.Queue, r.Options.Deployment
	if queue != "" {
		if err := payload.CheckName("queue", queue, keys.MaxName); err != nil {
			return nil, err
		}
		if r.Options.NoQueue {
			return nil, payload.Invalid("queue", queue, "is given together with NoQueue")
		}
	}
	if deployment != "" {
		if err := payload.CheckName("deployment", deployment, keys.MaxName); err != nil {
			return nil, err
		}
	}
	if err := payload.CheckLabels(r.Options.Labels); err != nil {
		return nil, fmt.Errorf("start of %s %q: %w", r.Workflow, id, err)
	}
	if !r.Options.StartAt.Before(lastStart) {
		return nil, payload.Invalid("start of workflow", id, fmt.Sprintf("is to be delayed until %v, which is after the year 2199", r.Options.StartAt))
	}
	wf := &journal.Workflow{ID: id, Generation: h.NewID(), ByGeneration: h.ByGeneration, Type: r.Workflow, Queue: queue, Waits: queue != "", Labels: maps.Clone(r.Options.Labels)}
	if deployment != "" {
		wf.StartOn(deployment)
	}
	if name, _, ok := namespace.Split(id); ok {
		wf.Needs = append(wf.Needs, namespace.Need)
		wf.Labels = Relabelled(wf.Labels, map[string]string{namespace.Label: name})
	}
	if r.Options.StartAt.After(h.Now()) {
		wf.Delay(r.Options.StartAt)
	}
	return &PreparedStart{host: h, Workflow: wf}, nil
}

// lastStart is the time before which a delayed workflow must start: keys have no later ones.
var lastStart = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// Returns checks that the input, which s has encoded, is decoded as it was.
func (s *PreparedStart) Returns(ctx context.Context, input any) error {
	if err := s.host.Codecs.Returns(ctx, input, s.input); err != nil {
		return fmt.Errorf("%w: input of %s %q: %w", weft.ErrInvalid, s.Workflow.Type, s.Workflow.ID, err)
	}
	return nil
}

// Decide returns the whole start as one batch.
func (s *PreparedStart) Decide() (*journal.Write, error) {
	now := s.host.Now()
	owner, todo, floor := "", []byte(nil), uint64(0)
	if s.Owner != nil {
		owner, floor = s.Owner.Name(), s.Owner.Least()
	} else {
		todo = EntryOf(s.Workflow, now, s.Workflow.Generation)
	}
	wf := *s.Workflow
	under := s.bind(&wf)
	w, err := journal.Create(&wf, s.Replaces, owner, todo, floor, now)
	if err != nil {
		return nil, err
	}
	w.Batch.If = append(w.Batch.If, under...)
	in, err := journal.PutInput(s.Workflow.ID, &journal.Input{Generation: s.Workflow.Generation, Codec: s.input.Codec, Data: s.input.Data, Headers: s.headers})
	if err != nil {
		return nil, err
	}
	w.Batch.If = append(w.Batch.If, storage.Absent(in.Key)) // an input without a workflow record is damage
	w.Batch.Ops = append(w.Batch.Ops, in)
	return w, nil
}

// EntryOf returns the key of the entry by which an unclaimed wf is found: in the line of
// its queue, or in the list of unclaimed workflows. One that is delayed is in that list too.
func EntryOf(wf *journal.Workflow, now time.Time, nonce string) []byte {
	if wf.Delayed() {
		return keys.Todo(0, journal.Time(wf.StartAt), wf.ID, nonce)
	}
	if wf.Queue != "" {
		return keys.Line(wf.Queue, now, wf.ID)
	}
	return keys.TodoNow(0, now, wf.ID, nonce)
}

// Begun executes the started workflow, or makes the engine look for it.
func (s *PreparedStart) Begun(w *journal.Write) {
	s.tellStarted()
	if s.Owner != nil {
		def, _ := s.host.Fits(s.Workflow)
		x := New(s.host, s.Owner, def, w.Hold())
		x.Input, x.headers = s.input, s.headers
		if !s.Signalled {
			x.Address = Address{Workflow: w.After}
		}
		s.Owner.Launch(x)
		return
	}
	s.host.Peers.PokePoll()
}
