package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/reconcile"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

const (
	beatEvery         = 5 * time.Second // minimum interval between writes of an attempt's progress
	finalFlushTimeout = 5 * time.Second // how long the end of an attempt waits for the last write
)

// A heart stores the progress that an attempt reports. Progress has a record of its own outside the checkpoints, so that the
// history does not grow while an activity works. Each write has the condition that the run still has the same owner.
type heart struct {
	j *job

	mu    lock.Mutex // guards the fields up to io
	told  payload.Payload
	beats int         // number of reports
	saved int         // number of reports that are stored
	timer *time.Timer // for the next write; nil: nothing is to be written
	over  bool        // the attempt has ended

	// io is full during calls to the store, and guards the fields below. It is not a
	// mutex: in tests with virtual time, no mutex may be held while time must pass.
	io       chan struct{}
	wf       *journal.Workflow // as read last
	stored   reconcile.Beat    // the stored progress
	read     bool              // stored is up to date
	before   *reconcile.Beat   // the stored progress when the attempt began; nil: not read
	disabled bool              // nothing more can be written
}

// A pulse holds the heart of an attempt. The heart is made when it is first used.
type pulse struct {
	mu    lock.Mutex
	heart *heart
	over  bool
}

// heart returns the heart of j, or nil if the attempt is over.
func (j *job) heart() *heart {
	j.pulse.mu.Lock()
	defer j.pulse.mu.Unlock()
	if j.pulse.over {
		return nil
	}
	if j.pulse.heart == nil {
		j.pulse.heart = &heart{j: j, io: make(chan struct{}, 1), wf: j.wf}
	}
	return j.pulse.heart
}

// Beat takes the attempt's progress. It is written later.
func (j *job) Beat(progress any) error {
	p, err := j.x.host.encode(progress)
	if err != nil {
		return fmt.Errorf("engine: progress: %w", err)
	}
	if len(p.Data) > weft.MaxProgress {
		return fmt.Errorf("engine: progress: encode %T: %d bytes, at most %d", progress, len(p.Data), weft.MaxProgress)
	}
	h := j.heart()
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = p
	h.beats++
	if h.timer == nil && !h.over {
		h.timer = time.AfterFunc(beatEvery, h.beat)
	}
	return nil
}

// Last decodes the last progress of an earlier attempt, and reports whether there was any.
func (j *job) Last(progress any) bool {
	h := j.heart()
	if h == nil {
		return false
	}
	h.io <- struct{}{}
	defer func() { <-h.io }()
	if err := h.find(j.ctx, j.x.store); err != nil {
		j.x.unread(j.op, err)
		return false
	}
	return j.x.reads(h.before, j.wf, j.op, progress)
}

// reads decodes the progress in b if b belongs to this operation and generation.
func (x *Execution) reads(b *reconcile.Beat, wf *journal.Workflow, o *operation, progress any) bool {
	if b.Generation != wf.Generation || b.Activity != o.name {
		return false
	}
	err := x.host.Codecs.Decode(x.host.Base, payload.Payload{Codec: b.Codec, Data: b.Progress}, progress)
	if err != nil {
		x.unread(o, err)
	}
	return err == nil
}

func (x *Execution) unread(o *operation, err error) {
	o.logger().Warn("weft: progress of an activity could not be read", "error", err)
}

// beat writes the latest progress, and schedules the next write if there is newer progress.
func (h *heart) beat() {
	h.io <- struct{}{}
	defer func() { <-h.io }()
	if h.j.ctx.Err() != nil {
		return // pulse.end writes the rest
	}
	h.write(h.j.ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = nil
	if !h.over && h.saved < h.beats {
		h.timer = time.AfterFunc(beatEvery, h.beat)
	}
}

// unsaved reports whether there is progress that is not stored.
func (h *heart) unsaved() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.saved < h.beats
}

// end ends the reporting of progress. If the attempt has failed, its last progress is
// written, so that the next attempt and the verifier find it.
func (p *pulse) end(failed bool) {
	p.mu.Lock()
	h := p.heart
	p.over = true
	p.mu.Unlock()
	if h == nil {
		return
	}
	h.mu.Lock()
	h.over = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.mu.Unlock()
	h.io <- struct{}{} // also waits for a write in progress
	defer func() { <-h.io }()
	if !failed || !h.unsaved() {
		return
	}
	ctx, cancel := context.WithTimeout(h.j.x.host.Base, finalFlushTimeout)
	defer cancel()
	for wait := 10 * time.Millisecond; !h.write(ctx); wait *= 2 {
		if h.j.x.Owner.Context().Err() != nil || !backoff.Wait(ctx, wait) {
			return
		}
	}
}

// write stores the latest progress. done is false if it is worth trying again. An error of
// the store is logged, and does not affect the attempt.
func (h *heart) write(ctx context.Context) (done bool) {
	h.mu.Lock()
	told, n := h.told, h.beats
	h.mu.Unlock()
	for !h.disabled {
		err := h.commit(ctx, told)
		if err == nil {
			h.mu.Lock()
			h.saved = n
			h.mu.Unlock()
			return true
		}
		if errors.Is(err, storage.ErrConflict) {
			err = h.owned(ctx)
		}
		if err != nil {
			h.disabled = settle.Hopeless(err)
			h.j.op.logger().Warn("weft: progress of an activity could not be written", "error", err)
			return h.disabled
		}
	}
	return true
}

// commit writes told if the run has the same owner and the record has not changed since it
// was read. If the outcome is unknown, the next write reads the record.
func (h *heart) commit(ctx context.Context, told payload.Payload) error {
	store := h.j.x.host.Store
	if err := h.find(ctx, store); err != nil {
		return err
	}
	b := h.stored
	b.Generation, b.Activity, b.Attempt = h.wf.Generation, h.j.op.name, h.j.attempt.number
	b.At = max(journal.Micro(h.j.x.host.Now()), b.At+1)
	b.Codec, b.Progress = told.Codec, told.Data
	b, put, err := b.Seal()
	if err != nil {
		return err
	}
	err = store.Commit(ctx, storage.Batch{
		If:  []storage.Condition{h.wf.Unchanged(), h.stored.Unchanged()},
		Ops: []storage.Op{put},
	})
	h.stored, h.read = b, err == nil
	return err
}

// find reads the stored progress, unless it is known.
func (h *heart) find(ctx context.Context, s storage.Storage) error {
	if h.read {
		return nil
	}
	b, err := reconcile.ReadBeat(ctx, s, h.j.x.ID, h.j.op.id)
	if err != nil {
		return err
	}
	h.stored, h.read = b, true
	if h.before == nil {
		h.before = &b
	}
	return nil
}

// owned checks whether the run still has the same owner. If not, it cancels the attempt.
func (h *heart) owned(ctx context.Context) error {
	wf, err := journal.Load(ctx, h.j.x.host.Store, h.j.x.ID)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	was := h.wf
	if err != nil || !wf.SameOwnership(was) {
		h.disabled = true
		cause := activity.ErrLeaseLost
		if err == nil && wf.TerminatedUnder(was) {
			cause = activity.ErrTerminated
		}
		h.j.attempt.cancel(cause)
		return nil
	}
	h.wf = wf
	return nil
}

// A reader gives a verifier the progress of the attempt. A verifier reports none itself.
type reader struct {
	x   *Execution
	op  *operation
	wf  *journal.Workflow
	ctx context.Context
}

func (*reader) Beat(any) error { return nil }

func (r *reader) Last(progress any) bool {
	b, err := reconcile.ReadBeat(r.ctx, r.x.store, r.x.ID, r.op.id)
	if err != nil {
		r.x.unread(r.op, err)
		return false
	}
	return r.x.reads(&b, r.wf, r.op, progress)
}
