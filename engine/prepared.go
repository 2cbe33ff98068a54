package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A starting is a prepared start: of a workflow by a call, or of a child by its parent.
type starting struct {
	host  *host
	owner owner // that will execute it; nil: a poll will find it
	wf    *checkpoint.Workflow
	on    *checkpoint.Workflow // the tombstone that it replaces
	input payload
	under *activeRecord // the deployment on which a Pinned workflow starts; nil: any

	signalled bool // a signal is accepted in the same commit
}

// prepare validates and encodes a start before anything is written.
func (h *host) prepare(ctx context.Context, r *StartRequest) (*starting, error) {
	if err := checkName("workflow name", r.Workflow, keys.MaxName); err != nil {
		return nil, err
	}
	id := r.ID
	if id == "" {
		id = "wrun_" + h.newID()
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
	input, digest, err := h.codecs.identify(ctx, r.Input)
	if err != nil {
		return nil, fmt.Errorf("%w: input of %s %q: %w", ErrInvalid, r.Workflow, id, err)
	}
	if len(input.data) > h.maxPayload {
		return nil, invalid("input of workflow", id, fmt.Sprintf("has %d bytes, at most %d", len(input.data), h.maxPayload))
	}
	return &starting{
		host:  h,
		wf:    &checkpoint.Workflow{ID: id, Generation: h.newID(), Type: r.Workflow, Digest: digest, Queue: queue, Waits: queue != ""},
		input: input,
	}, nil
}

// decide returns the whole start as one batch.
func (s *starting) decide() (*checkpoint.Write, error) {
	now := s.host.now()
	owner, floor := "", uint64(0)
	if s.owner != nil {
		owner, floor = s.owner.Name(), s.owner.Least()
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

// begun executes the started workflow, or makes the engine look for it.
func (s *starting) begun(w *checkpoint.Write) {
	if s.owner != nil {
		def, _ := s.host.fits(s.wf)
		x := newExecution(s.host, s.owner, def, w.Hold())
		x.input = s.input
		if !s.signalled {
			x.address = address{wf: w.After}
		}
		s.owner.Launch(x)
		return
	}
	s.host.peers.PokePoll()
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
