package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/stream"
)

const (
	chunkDelay    = 10 * time.Millisecond // how long a chunk waits for others
	chunksAtOnce  = 64 << 10              // bytes that do not wait
	mostUnsaved   = 1 << 20               // bytes for which Write does not wait
	closesAtOnce  = 100                   // streams that one checkpoint closes
	appendTries   = 100
	streamFeature = "a stream"
)

// streams are the streams of a run.
type streams struct {
	asked []*operation // to close a stream, in the order in which they began; for whoever has the turn
	held  []*appender  // that may not append until the next checkpoint is decided; likewise

	mu        lock.Mutex
	appenders map[string]*appender // by name
}

// A closing operation closes a stream.
type closing struct {
	head *chunks.Head // as it was read
}

// CloseStream is engine.Run.CloseStream.
func (r *Handle) CloseStream(name string) future.Operation {
	if err := storage.Require(r.x.host.Store, streamFeature, "conditionalBatch"); err != nil {
		return refusal{err}
	}
	op := r.startOperation(ofClosing, name, nil)
	if o, ok := op.(*operation); ok && !o.done {
		o.closing = &closing{}
	}
	return op
}

// lookForStreams reads the heads of the streams that the next checkpoint closes. What was written to
// them before is stored first. Nothing is appended to them until letGo.
func (x *Execution) lookForStreams() (err error) {
	for _, o := range x.streams.asked[:min(len(x.streams.asked), closesAtOnce)] {
		if !o.open {
			continue
		}
		a := x.appender(o.name, x.Hold.Workflow)
		if !slices.Contains(x.streams.held, a) { // to hold it twice would let it append in between
			x.streams.held = append(x.streams.held, a)
			if err = a.hold(x.Ctx); err != nil {
				return err
			}
		}
		if o.closing.head, err = a.log.Read(x.Ctx, x.store); err != nil {
			return err
		}
	}
	return nil
}

// letGo has those append that were held.
func (x *Execution) letGo() {
	for _, a := range x.streams.held {
		a.letGo()
	}
	x.streams.held = nil
}

// closeStream adds to a decision that o closes its stream. It returns false if o must wait for another checkpoint.
func (x *Execution) closeStream(o *operation, d *decision) (e checkpoint.Event, fits bool, err error) {
	if slices.Contains(d.closed, o.name) {
		return e, false, nil
	}
	_, conditions, ops, err := o.closing.head.Close(o.id)
	if err != nil {
		return e, false, err
	}
	c := &d.Change
	c.If, c.Ops = append(c.If, conditions...), append(c.Ops, ops...)
	if !x.Hold.Workflow.HasStreams() {
		x.rewriting(c).Stream()
	}
	d.closed = append(d.closed, o.name)
	return o.event(checkpoint.KindClosed), true, nil
}

// An appender appends to one stream what the attempts of a run write.
type appender struct {
	x   *Execution
	log chunks.Log

	mu      lock.Mutex // guards what follows, up to changed
	pending []written
	bytes   int           // written and not stored, also by a commit in progress
	told    int           // chunks that were written
	saved   int           // of these, that were stored or given up
	since   time.Time     // when the first of pending was written
	urgent  bool          // somebody waits for it
	saving  bool          // a goroutine stores what is pending
	held    bool          // the driver is about to close the stream
	err     error         // why nothing can be appended any more
	changed chan struct{} // closed when any of this has changed
	bell    chan struct{} // wakes the goroutine that stores

	// For the goroutine that stores.
	wf   *journal.Workflow // as read last
	head *chunks.Head      // likewise; nil: not read
}

// written is a chunk that is to be stored.
type written struct {
	chunks.Chunk
	by   *writing
	size int
}

// writing is one attempt's part of an appender, whose mutex guards it.
type writing struct {
	to      *appender
	j       *job
	unsaved int   // chunks
	err     error // why some of its chunks were not stored
	over    bool  // the attempt has returned
}

// writings are those of an attempt.
type writings struct {
	mu   lock.Mutex
	by   map[string]*writing // by the name of the stream
	over bool
}

// appender returns the appender of a stream. wf is the record of the run, as far as it is known.
func (x *Execution) appender(name string, wf *journal.Workflow) *appender {
	s := &x.streams
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.appenders[name]
	if a == nil {
		a = &appender{x: x, log: chunks.Of(x.ID, name, wf.Generation), wf: wf, changed: make(chan struct{}), bell: make(chan struct{}, 1)}
		if s.appenders == nil {
			s.appenders = map[string]*appender{}
		}
		s.appenders[name] = a
	}
	return a
}

// WriteChunk is stream.Attempt.WriteChunk.
func (j *job) WriteChunk(name string, v any) error {
	w, err := j.writing(name)
	if err != nil {
		return err
	}
	p, err := j.x.host.encode(v)
	most := min(stream.MaxChunk, j.x.host.MaxPayload)
	switch {
	case err != nil:
		return fmt.Errorf("%w: chunk of stream %q: %w", weft.ErrInvalid, name, err)
	case len(p.Data) > most:
		return fmt.Errorf("%w: chunk of stream %q: encode %T: %d bytes, at most %d", weft.ErrInvalid, name, v, len(p.Data), most)
	}
	return w.write(p)
}

// FlushChunks is stream.Attempt.FlushChunks.
func (j *job) FlushChunks(name string) error {
	w, err := j.writing(name)
	if err != nil {
		return err
	}
	return w.flush(j.ctx)
}

// writing returns what j writes to a stream.
func (j *job) writing(name string) (*writing, error) {
	if j.ctx.Err() != nil {
		return nil, j.endedBy()
	}
	if err := payload.CheckName("name of stream", name, keys.MaxName); err != nil {
		return nil, err
	}
	if err := storage.Require(j.x.host.Store, streamFeature, "conditionalBatch"); err != nil {
		return nil, err
	}
	a := j.x.appender(name, j.wf)
	j.writings.mu.Lock()
	defer j.writings.mu.Unlock()
	if j.writings.over {
		return nil, stream.ErrStale
	}
	w := j.writings.by[name]
	if w == nil {
		if j.writings.by == nil {
			j.writings.by = map[string]*writing{}
		}
		w = &writing{to: a, j: j}
		j.writings.by[name] = w
	}
	return w, nil
}

// endedBy returns the error of a writer whose attempt's context has ended: why it is to stop, or ErrStale if the
// attempt has returned, or the run does not belong to this engine any more.
func (j *job) endedBy() error {
	cause := context.Cause(j.ctx)
	for _, stops := range []error{activity.ErrTimeout, activity.ErrStopped, weft.ErrCancelled, weft.ErrTimeout} {
		if errors.Is(cause, stops) && cause != errOver {
			return cause
		}
	}
	return fmt.Errorf("%w: %w", stream.ErrStale, cause)
}

// write has p stored. It waits while too much is not.
func (w *writing) write(p payload.Payload) error {
	a, j := w.to, w.j
	i := activity.InfoFrom(j.ctx)
	c := written{by: w, Chunk: chunks.Chunk{
		ID: "chnk_" + j.x.host.NewID(), At: journal.Micro(j.x.host.Now()),
		Operation: i.Operation, Attempt: i.Attempt, Codec: p.Codec, Data: p.Data,
	}}
	c.size = a.log.Size(&c.Chunk)
	for {
		a.mu.Lock()
		if err := w.refusal(); err != nil {
			a.mu.Unlock()
			return err
		}
		if a.bytes == 0 || a.bytes+c.size <= mostUnsaved {
			if len(a.pending) == 0 {
				a.since = time.Now()
			}
			a.pending = append(a.pending, c)
			a.bytes += c.size
			a.told++
			w.unsaved++
			a.save()
			a.mu.Unlock()
			return nil
		}
		a.urgent = true
		a.save()
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-j.ctx.Done():
			return j.endedBy()
		}
	}
}

// refusal returns why w may not write. The caller holds the mutex.
func (w *writing) refusal() error {
	switch {
	case w.err != nil:
		return w.err
	case w.to.err != nil:
		return w.to.err
	case w.over:
		return stream.ErrStale
	}
	return nil
}

// flush waits until everything that w has written is stored.
func (w *writing) flush(ctx context.Context) error {
	a := w.to
	for {
		a.mu.Lock()
		if w.unsaved == 0 {
			err := w.err
			a.mu.Unlock()
			return err
		}
		a.urgent = true
		a.save()
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			if ctx == w.j.ctx {
				return w.j.endedBy()
			}
			return context.Cause(ctx)
		}
	}
}

// endWriting ends what the attempt writes. If it has succeeded, everything must be stored: otherwise it has failed.
// Else what is left is stored if that does not take long.
func (j *job) endWriting(a *answer) {
	j.writings.mu.Lock()
	j.writings.over = true
	all := j.writings.by
	j.writings.mu.Unlock()
	if len(all) == 0 {
		return
	}
	ctx := j.ctx
	if a.failure != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(j.x.Ctx, finalFlushTimeout)
		defer cancel()
	}
	for name, w := range all {
		w.to.mu.Lock()
		w.over = true
		w.to.mu.Unlock()
		if err := w.flush(ctx); err != nil && a.failure == nil {
			f := payload.FailureOf(fmt.Errorf("stream %q: a chunk that the attempt has written is not stored: %w", name, err), "", nil)
			a.result, a.failure = payload.Payload{}, &f
		}
	}
}

// save has a goroutine store what is pending. The caller holds the mutex.
func (a *appender) save() {
	if a.saving || a.held || len(a.pending) == 0 {
		select {
		case a.bell <- struct{}{}:
		default:
		}
		return
	}
	a.saving = true
	a.x.attempts.Add(1) // the attempt that has written it has not returned
	go a.saveAll()
}

// saveAll stores what is pending until there is nothing more.
func (a *appender) saveAll() {
	defer a.x.attempts.Done()
	for {
		batch, wait := a.next()
		switch {
		case wait > 0:
			enough := time.NewTimer(wait)
			select {
			case <-enough.C:
			case <-a.bell:
			case <-a.x.Ctx.Done():
				a.hurry()
			}
			enough.Stop()
		case len(batch) == 0:
			return
		default:
			a.stored(batch, a.append(batch))
		}
	}
}

func (a *appender) hurry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.urgent = true
}

// next returns the chunks of the next commit, or how long they may wait for others. Without either, the
// goroutine that stores ends.
func (a *appender) next() (batch []written, wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pending) == 0 || a.held {
		a.saving, a.urgent = false, false
		a.tell()
		return nil, 0
	}
	if wait = time.Until(a.since.Add(chunkDelay)); wait > 0 && !a.urgent && a.bytes < chunksAtOnce && len(a.pending) < chunks.AppendChunks {
		return nil, wait
	}
	most, bytes, n, size := min(chunks.AppendChunks, max(1, a.x.host.MaxOps-Spare)), min(chunks.AppendBytes, a.x.host.MaxBytes), 0, 0
	for n < min(len(a.pending), most) {
		if size += a.pending[n].size; n > 0 && size > bytes {
			break
		}
		n++
	}
	batch = slices.Clone(a.pending[:n])
	a.pending = slices.Delete(a.pending, 0, n)
	if len(a.pending) == 0 {
		a.urgent = false
	}
	a.since = time.Now()
	return batch, 0
}

// tell tells those who wait that something has changed. The caller holds the mutex.
func (a *appender) tell() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// stored notes what became of a batch. After an error the attempts that have written it, or what is pending, can write
// no more, since a reader would miss something in between. A later attempt can, unless the stream is closed, or the run
// has another owner.
func (a *appender) stored(batch []written, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		if errors.Is(err, stream.ErrClosed) || errors.Is(err, stream.ErrStale) {
			a.err = err
		}
		batch, a.pending = append(batch, a.pending...), nil
	}
	for _, c := range batch {
		a.bytes -= c.size
		a.saved++
		c.by.unsaved--
		if err != nil {
			c.by.err = err
		}
	}
	a.tell()
}

// hold waits until what was written before is stored, and until nothing is being appended. Nothing is, then, until
// letGo.
func (a *appender) hold(ctx context.Context) error {
	a.mu.Lock()
	before := a.told
	for a.saved < before || a.saving {
		if a.held = a.saved >= before; !a.held {
			a.urgent = true
			a.save()
		}
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		a.mu.Lock()
	}
	a.held, a.head = true, nil
	a.mu.Unlock()
	return nil
}

// letGo ends hold.
func (a *appender) letGo() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held = false
	a.save()
}

// append appends chunks to the stream, if the run still belongs to the owner.
func (a *appender) append(batch []written) error {
	cs := make([]chunks.Chunk, len(batch))
	for i, c := range batch {
		cs[i] = c.Chunk
	}
	x := a.x
	for range appendTries {
		if a.head == nil {
			if err := a.read(); err != nil {
				return err
			}
		}
		decided, err := a.head.Append(cs)
		if errors.Is(err, chunks.ErrClosed) {
			return stream.ErrClosed
		}
		if err != nil {
			return err
		}
		wf, ops, err := a.wf.Streaming()
		if err != nil {
			return err
		}
		decided.Batch.If = append(decided.Batch.If, a.wf.Unchanged())
		decided.Batch.Ops = append(decided.Batch.Ops, ops...)
		err = decided.Commit(x.Ctx, x.host.Store, x.Owner.Unsure("chunks of a stream", x.ID))
		if err == nil {
			a.head, a.wf = decided.Next, wf
			if len(ops) > 0 {
				x.Post(Written{Record: true})
			}
			return nil
		}
		a.head = nil
		if !errors.Is(err, storage.ErrConflict) {
			return err
		}
		if err := a.owned(batch); err != nil {
			return err
		}
	}
	return fmt.Errorf("engine: %w: commits and reads of record %q contradict each other", storage.ErrCorrupt, a.log.HeadKey)
}

// read reads the head of the stream.
func (a *appender) read() (err error) {
	a.head, err = a.log.Read(a.x.Ctx, a.x.store)
	return err
}

// owned reads the record of the run. If the run has another owner, or has ended, owned cancels the attempts that
// have written batch, and returns ErrStale.
func (a *appender) owned(batch []written) error {
	wf, err := journal.Load(a.x.Ctx, a.x.store, a.x.ID)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	if err == nil && wf.SameOwnership(a.wf) {
		a.wf = wf
		return wf.Understood()
	}
	cause := activity.ErrLeaseLost
	if err == nil && wf.TerminatedUnder(a.wf) {
		cause = activity.ErrTerminated
	}
	for _, c := range batch {
		c.by.j.attempt.cancel(cause)
	}
	return fmt.Errorf("%w: %w", stream.ErrStale, cause)
}
