package worldstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/follow"
	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/storage"
)

const (
	maxStream     = keys.MaxID       // bytes of the name of a stream
	mostAppenders = 1000             // that are kept while nobody writes
	opsOfAnAppend = 4                // operations and conditions beside the chunks
	closedBy      = "close"          // what a head says of who has closed it: the calls of clients are not told apart
	readFirst     = 4                // chunks that are read at once at the beginning
	readAtOnce    = 128              // the most
	manyBytes     = 1 << 20          // after which fewer chunks are read at once
	pageBytes     = 8 << 20          // after which a page of chunks ends
	quietTime     = 30 * time.Second // see Streams.quiet
	mostEnds      = 10_000           // see Streams.ends
	endKept       = 10 * time.Minute
)

// Streams are the streams of the runs in a store. A stream is a log of chunks, which any process may append to and
// read. Call Close at the end.
type Streams struct {
	store storage.Storage
	ids   ids.Source
	now   func() time.Time
	tails chunks.Tails

	// A reader ends when its stream is closed, or when the run has ended and nothing was appended for so long. A step
	// writes the last chunks of a stream after its end was recorded.
	quiet time.Duration

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup

	mu     lock.Mutex // guards the fields below, and those of appenders that say so
	closed bool
	open   map[string]*appender // by the key of the head

	// When runs were seen to have ended, by the key of the head of a stream: for readers who are cut while they wait, and come again.
	ends map[string]end
}

// An end says when the run of a stream was first seen to have ended, with so many chunks of the stream.
type end struct {
	at    time.Time // by the monotonic clock
	count uint64
}

// Open returns the streams in a store. A store without conditional batches is refused with a
// *storage.CapabilityError.
func Open(s storage.Storage, o *world.Options) (*Streams, error) {
	if err := storage.Require(s, "a stream of a world", "conditionalBatch"); err != nil {
		return nil, err
	}
	all := &Streams{now: time.Now, quiet: quietTime, open: map[string]*appender{}, ends: map[string]end{}}
	if o != nil && o.Now != nil {
		all.now = o.Now
	}
	hub := new(follow.Hub)
	all.store = follow.Store{Storage: s, Hub: hub}
	all.tails.Hub, all.tails.Store = hub, s
	all.life, all.end = context.WithCancel(context.Background())
	return all, nil
}

// Close ends readers and writers with storage.ErrClosed, and waits for what was begun. It does not close the store.
func (s *Streams) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.work.Wait()
}

// closed is the error of a call after Close.
func closed(run, name string) error {
	return fmt.Errorf("world: stream %q of run %q: %w", name, run, storage.ErrClosed)
}

func logOf(run, name string) chunks.Log {
	return chunks.Log{HeadKey: keys.WorldStream(run, name), Prefix: keys.WorldChunksOf(run, name)}
}

// A Write is what is written to a stream. Its chunks are appended in one commit.
type Write struct {
	RunID  string
	Name   string // of the stream
	Chunks [][]byte

	// RequestID names the call. If Retry is set, an earlier call with this name may have been
	// answered already, and is answered again.
	RequestID string
	Retry     bool
}

// A Written is what became of a Write.
type Written struct {
	Index  uint64 `json:"index"`            // the number of its first chunk
	Closed bool   `json:"closed,omitempty"` // the stream was closed already, and nothing was written
}

func checkStream(run, name string) error {
	switch {
	case run == "":
		return world.Invalid("runId is required")
	case len(run) > keys.MaxID:
		return world.Invalid("An id has at most %d bytes", keys.MaxID)
	case name == "" || len(name) > maxStream:
		return world.Invalid("The name of a stream has 1 to %d bytes, got %d", maxStream, len(name))
	case !utf8.ValidString(run), !utf8.ValidString(name):
		return world.Invalid("The name of a stream and the id of its run must be valid UTF-8, got %q of %q", name, run)
	}
	return nil
}

// Write appends chunks to a stream. To a stream that is closed nothing is written, and that is no error: a step that
// closed its stream, crashed and is repeated must not fail. The run may not be there yet.
//
// An *Error refuses it, and then nothing was written. After any other error it may have been written or not: call again with
// the same RequestID and Retry.
func (s *Streams) Write(ctx context.Context, w Write) (*Written, error) {
	if err := checkStream(w.RunID, w.Name); err != nil {
		return nil, err
	}
	switch {
	case len(w.RequestID) > keys.MaxRequestID:
		return nil, world.Invalid("The id of a request has at most %d bytes", keys.MaxRequestID)
	case !utf8.ValidString(w.RequestID): // no record can have it
		return nil, world.Invalid("The id of a request must be valid UTF-8, got %q", w.RequestID)
	}
	if len(w.Chunks) == 0 || len(w.Chunks) > chunks.AppendChunks {
		return nil, world.Invalid("A call writes 1 to %d chunks, got %d", chunks.AppendChunks, len(w.Chunks))
	}
	c := &writing{call: w.RequestID, retry: w.Retry && w.RequestID != "", ctx: ctx}
	log := logOf(w.RunID, w.Name)
	for i, data := range w.Chunks {
		chunk := chunks.Chunk{ID: s.ids.New(ids.Chunk, s.now()), At: s.now().UnixMicro(), Data: slices.Clone(data), Call: w.RequestID, Part: i}
		c.chunks = append(c.chunks, chunk)
		c.bytes += log.Size(&chunk)
	}
	ops, bytes := s.room(w.RunID, w.Name)
	if len(c.chunks) > ops || c.bytes > bytes {
		return nil, &world.Error{Status: 413, Code: world.CodeInvalid, Message: fmt.Sprintf("%d chunks of %d bytes are too many for one call: the store takes %d of %d bytes", len(c.chunks), c.bytes, ops, bytes)}
	}
	return s.do(ctx, w.RunID, w.Name, c)
}

// CloseStream closes a stream. It changes nothing if the stream is closed.
func (s *Streams) CloseStream(ctx context.Context, run, name string) error {
	if err := checkStream(run, name); err != nil {
		return err
	}
	_, err := s.do(ctx, run, name, &writing{closes: true, ctx: ctx})
	return err
}

// room returns how many chunks, of how many bytes, one batch can have.
func (s *Streams) room(run, name string) (ops, bytes int) {
	most := s.store.Capabilities().MaxBatch
	ops, bytes = chunks.AppendChunks, math.MaxInt
	if most.Ops > 0 {
		ops = min(ops, most.Ops-opsOfAnAppend)
	}
	if most.Bytes > 0 {
		bytes = most.Bytes - 16*(len(run)+len(name)) - 1024 // the keys are escaped, and there are four others
	}
	return ops, bytes
}

// A writing is a call that writes to a stream or closes it.
type writing struct {
	chunks []chunks.Chunk
	bytes  int
	closes bool
	call   string // names it
	retry  bool   // it may have been made before
	ctx    context.Context

	judged   bool   // it was decided once
	searched uint64 // the call has not written the chunks before this number

	done    chan struct{} // closed when the fields below are set
	written Written
	err     error
}

func (w *writing) answer(written Written, err error) {
	w.written, w.err = written, err
	close(w.done)
}

// An appender appends to one stream what calls of this process write. Calls that come while it commits share its
// next commit.
type appender struct {
	s         *Streams
	run, name string
	log       chunks.Log

	pending []*writing // guarded by Streams.mu
	busy    bool       // likewise: the goroutine lives

	head  *chunks.Head // of the goroutine alone: as read or written last; nil: not known
	early bool         // likewise: the run was not there then
}

// do makes a call.
func (s *Streams) do(ctx context.Context, run, name string, w *writing) (*Written, error) {
	w.done = make(chan struct{})
	log := logOf(run, name)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, closed(run, name)
	}
	a := s.open[string(log.HeadKey)]
	if a == nil {
		a = &appender{s: s, run: run, name: name, log: log}
		s.open[string(log.HeadKey)] = a
	}
	a.pending = append(a.pending, w)
	if !a.busy {
		a.busy = true
		s.work.Go(a.appendAll)
	}
	s.mu.Unlock()
	err := error(nil)
	select {
	case <-w.done:
		err = w.err
	case <-ctx.Done():
		err = context.Cause(ctx)
		s.mu.Lock()
		// The goroutine may be busy for as long as the store is away.
		a.pending = slices.DeleteFunc(a.pending, func(other *writing) bool { return other == w })
		s.mu.Unlock()
	}
	if err != nil {
		if _, ok := errors.AsType[*world.Error](err); !ok {
			err = fmt.Errorf("world: write to stream %q of run %q: %w", name, run, err)
		}
		return nil, err
	}
	return &w.written, nil
}

// appendAll makes calls until there are none.
func (a *appender) appendAll() {
	for {
		group := a.next()
		if len(group) == 0 {
			return
		}
		if err := a.commit(&group); err != nil {
			a.head = nil
			if a.s.life.Err() != nil {
				err = storage.ErrClosed
			}
			for _, w := range group {
				w.answer(Written{}, err)
			}
		}
	}
}

// next returns the calls that the next commit makes. Without any the goroutine ends.
func (a *appender) next() (group []*writing) {
	s := a.s
	ops, bytes := s.room(a.run, a.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	count, size := 0, 0
	for len(a.pending) > 0 {
		w := a.pending[0]
		if w.ctx.Err() != nil { // nothing was begun for it, and nobody waits for it
			a.pending = a.pending[1:]
			continue
		}
		count, size = count+len(w.chunks), size+w.bytes
		again := slices.ContainsFunc(group, func(other *writing) bool { return w.call != "" && w.call == other.call })
		if len(group) > 0 && (w.closes || group[0].closes || again || count > ops || size > min(bytes, chunks.AppendBytes)) {
			return group
		}
		group, a.pending = append(group, w), a.pending[1:]
	}
	if len(group) == 0 {
		a.busy, a.pending = false, nil
		if len(s.open) > mostAppenders {
			delete(s.open, string(a.log.HeadKey))
		}
	}
	return group
}

// commit makes calls. It leaves in group those that are not answered, and returns why.
func (a *appender) commit(group *[]*writing) error {
	ctx := a.s.life
	if a.head != nil && a.head.Closed != "" {
		a.head = nil // nothing is committed on it, so no refusal would tell that the stream was removed
	}
	for try := 0; ; try++ {
		if try >= 3 && !backoff.Wait(ctx, min(time.Duration(try)*time.Millisecond, 20*time.Millisecond)) { // others write, too
			return storage.ErrClosed
		}
		if a.head == nil {
			if err := a.read(ctx); err != nil {
				return err
			}
		}
		if err := a.search(ctx, group); err != nil || len(*group) == 0 {
			return err
		}
		if a.head.Closed != "" {
			for _, w := range *group {
				w.answer(Written{Index: a.head.Count, Closed: true}, nil)
			}
			*group = nil
			return nil
		}
		err := a.decideAndCommit(ctx, *group)
		switch {
		case errors.Is(err, storage.ErrConflict):
			a.head = nil // another process has written
		case err != nil:
			return err
		default:
			*group = nil
			return nil
		}
	}
}

// read reads the head of the stream, and looks for its run.
func (a *appender) read(ctx context.Context) error {
	run, err := world.StandingOf(ctx, a.s.store, a.run)
	switch {
	case err != nil:
		return err
	case run == world.StandingRemoved:
		return world.NotFound("Run", a.run)
	}
	a.early = run == world.StandingAbsent
	a.head, err = a.log.Read(ctx, a.s.store)
	return err
}

// search answers the calls of group that have written already: those that are made again, and those that were
// made by another process since the head was read before.
func (a *appender) search(ctx context.Context, group *[]*writing) error {
	sought := map[string]*writing{}
	low, most := a.head.Count, math.MaxInt
	for _, w := range *group {
		switch {
		case w.call == "" || w.closes:
			continue
		case w.judged:
			low = min(low, w.searched)
		case w.retry:
			low, most = 0, world.Searched
		default:
			w.judged, w.searched = true, a.head.Count
			continue
		}
		sought[w.call] = w
	}
	found := map[*writing]bool{}
	n := a.head.Count
	for calls := 0; len(sought) > 0 && n > low && calls < most; calls++ {
		page, err := a.log.Chunks(ctx, a.s.store, n-1, 1)
		if err != nil {
			return err
		}
		if len(page) == 0 { // the stream was removed
			break
		}
		c := page[0]
		n -= min(n, uint64(c.Part)+1)
		if w := sought[c.Call]; w != nil && c.Call != "" {
			w.answer(Written{Index: n}, nil)
			found[w] = true
			delete(sought, c.Call)
		}
	}
	for _, w := range sought {
		w.judged, w.searched = true, a.head.Count
	}
	*group = slices.DeleteFunc(*group, func(w *writing) bool { return found[w] })
	return nil
}

// decideAndCommit makes calls on the head that was read, and answers them.
func (a *appender) decideAndCommit(ctx context.Context, group []*writing) error {
	if group[0].closes {
		return a.close(ctx, group[0])
	}
	var cs []chunks.Chunk
	for _, w := range group {
		cs = append(cs, w.chunks...)
	}
	d, err := a.head.Append(cs)
	if err == nil {
		err = a.announce(&d.Batch)
	}
	if err == nil {
		err = d.Commit(ctx, a.s.store, nil)
	}
	if err != nil {
		return err
	}
	n := a.head.Count
	a.head = d.Next
	for _, w := range group {
		w.answer(Written{Index: n}, nil)
		n += uint64(len(w.chunks))
	}
	return nil
}

func (a *appender) close(ctx context.Context, w *writing) error {
	next, conditions, ops, err := a.head.Close(closedBy)
	b := storage.Batch{If: conditions, Ops: ops}
	if err == nil {
		err = a.announce(&b)
	}
	if err == nil {
		err = settle.Commit(ctx, a.s.store, b, nil, func(ctx context.Context) (bool, error) {
			h, err := a.log.Read(ctx, a.s.store)
			return err == nil && h.Closed != "", err
		})
	}
	if err != nil {
		return err
	}
	a.head = next
	w.answer(Written{Index: next.Count}, nil)
	return nil
}

// announce adds to the batch that begins a stream its entry in the list of its name, and, if its run is not there,
// one that has it removed if the run does not come.
func (a *appender) announce(b *storage.Batch) error {
	if a.head.Stored() {
		return nil
	}
	if a.early {
		if err := world.PutMark(b, keys.WorldExpiry(keys.WorldStreamEarly, a.s.now(), a.run)); err != nil {
			return err
		}
	}
	return world.PutMark(b, keys.WorldStreamNamed(a.name, a.run))
}

// A StreamInfo tells how far a stream is.
type StreamInfo struct {
	TailIndex int64 `json:"tailIndex"` // the number of the last chunk; -1: there is none
	Done      bool  `json:"done"`      // the stream is closed
}

// Info returns how far a stream is. One that is not there yet has no chunk.
func (s *Streams) Info(ctx context.Context, run, name string) (*StreamInfo, error) {
	h, err := s.headOf(ctx, run, name)
	if err != nil {
		return nil, err
	}
	return &StreamInfo{TailIndex: int64(h.Count) - 1, Done: h.Closed != ""}, nil
}

// headOf returns the head of a stream, or a 404 if its run is not there and nobody has written to the stream.
func (s *Streams) headOf(ctx context.Context, run, name string) (*chunks.Head, error) {
	if err := checkStream(run, name); err != nil {
		return nil, err
	}
	h, err := logOf(run, name).Read(ctx, s.store)
	if err == nil && h.Count == 0 && h.Closed == "" {
		err = s.known(ctx, run)
	}
	return h, err
}

// known returns a 404 for a run that is not there.
func (s *Streams) known(ctx context.Context, run string) error {
	standing, err := world.StandingOf(ctx, s.store, run)
	if err == nil && (standing == world.StandingAbsent || standing == world.StandingRemoved) {
		err = world.NotFound("Run", run)
	}
	return err
}

// List returns a page of the names of the streams of a run, in their order.
func (s *Streams) List(ctx context.Context, run string, p world.Page) (*world.Listed[string], error) {
	p, err := p.Check(world.ResolveAll)
	if err == nil && run == "" {
		err = world.Invalid("runId is required")
	}
	if err != nil {
		return nil, err
	}
	entries, err := world.Scan(ctx, s.store, keys.WorldStreamsOf(run), keys.WorldStream(run, p.Cursor), p)
	if err == nil && len(entries) == 0 {
		err = s.known(ctx, run)
	}
	if err != nil {
		return nil, err
	}
	more := len(entries) > p.Limit
	tail := p.Cursor
	var names []string
	for _, e := range entries[:min(len(entries), p.Limit)] {
		if tail, err = keys.Last(e.Key); err != nil {
			return nil, err
		}
		names = append(names, tail)
	}
	return world.ListedOf(names, more, tail), nil
}

// A Chunk is a chunk of a stream, as its client gets it.
type Chunk struct {
	Index uint64 `json:"index"`
	Data  []byte `json:"data"`
}

// A ChunkPage is a page of the chunks of a stream.
type ChunkPage struct {
	Data    []Chunk `json:"data"`
	Cursor  *string `json:"cursor"` // Tail if more follows, else nil
	HasMore bool    `json:"hasMore"`
	Tail    string  `json:"tail"` // the place behind the last chunk; of an empty page the request's cursor
	Done    bool    `json:"done"` // the stream is closed
}

// Chunks returns a page of the chunks of a stream that are there, in their order. A page may have fewer chunks than
// its limit, and more follow.
func (s *Streams) Chunks(ctx context.Context, run, name string, p world.Page) (*ChunkPage, error) {
	if p.Order == "" {
		p.Order = world.Ascending
	}
	p, err := p.Check(world.ResolveAll)
	if err == nil && p.Order != world.Ascending {
		err = world.Invalid("Chunks are listed in ascending order")
	}
	var next uint64
	if err == nil && p.Cursor != "" {
		if next, err = strconv.ParseUint(p.Cursor, 10, 63); err != nil {
			err = world.Invalid("cursor %.100q is none of this list", p.Cursor)
		}
		next++
	}
	if err != nil {
		return nil, err
	}
	h, err := s.headOf(ctx, run, name)
	if err != nil {
		return nil, err
	}
	out := &ChunkPage{Data: []Chunk{}, Tail: p.Cursor, Done: h.Closed != ""}
	r := s.from(logOf(run, name), next)
	end := min(h.Count, next+uint64(p.Limit))
	for size := 0; r.next < end && size < pageBytes; {
		page, err := r.read(ctx, end)
		if err != nil {
			return nil, s.gone(ctx, run, err)
		}
		out.Data = append(out.Data, page...)
		out.Tail = strconv.FormatUint(r.next-1, 10)
		for _, c := range page {
			size += len(c.Data)
		}
	}
	if out.HasMore = r.next < h.Count; out.HasMore {
		out.Cursor = &out.Tail
	}
	return out, nil
}

// A reading reads chunks in order.
type reading struct {
	s     *Streams
	log   chunks.Log
	next  uint64 // the number of the chunk that is read next
	limit int    // how many are read at once
}

func (s *Streams) from(log chunks.Log, next uint64) *reading {
	return &reading{s: s, log: log, next: next, limit: readFirst}
}

// read returns the next chunks, at least one. There are end chunks or more.
func (r *reading) read(ctx context.Context, end uint64) ([]Chunk, error) {
	page, err := r.log.Chunks(ctx, r.s.store, r.next, int(min(uint64(r.limit), end-r.next)))
	if err == nil && len(page) == 0 {
		err = fmt.Errorf("%w: chunk %q is missing", storage.ErrCorrupt, keys.Chunk(r.log.Prefix, r.next))
	}
	if err != nil {
		return nil, err
	}
	size := 0
	out := make([]Chunk, len(page))
	for i, c := range page {
		size += len(c.Data)
		out[i] = Chunk{c.Index, c.Data}
		if c.Data == nil {
			out[i].Data = []byte{} // not null, which ends a stream
		}
	}
	r.next += uint64(len(page))
	if r.limit = min(2*r.limit, readAtOnce); size > manyBytes {
		r.limit = max(1, r.limit/4)
	}
	return out, nil
}

// Read gives the chunks of a stream in order, those that are there and then those that come, until the stream is closed or
// its run has ended and nothing comes any more. It returns how many there are then. It begins at number at, or, if that is
// negative, so many before the end. It waits for a stream that is not there yet. Without a run it is the newest one
// with a stream of that name.
//
// give is called once without chunks before anything is waited for, with the number at which it begins. Then it gets chunks
// and the number of the first of them. An error of give ends it.
func (s *Streams) Read(ctx context.Context, run, name string, at int64, give func(first uint64, cs []Chunk) error) (count uint64, err error) {
	if s.life.Err() != nil { // not only if nothing is read before it is noticed
		return 0, closed(run, name)
	}
	given := false
	if run == "" {
		if err := checkStream("any", name); err != nil {
			return 0, err
		}
		if run, err = s.newest(ctx, name); err != nil {
			return 0, err
		}
		if run == "" { // the stream is not there yet, so it has no chunks from whose end at could count
			at, given = max(at, 0), true
			if err := give(uint64(at), nil); err != nil {
				return 0, err
			}
			if run, err = s.named(ctx, name); err != nil {
				return 0, err
			}
		}
	}
	if err := checkStream(run, name); err != nil {
		return 0, err
	}
	tail := s.tails.Follow(s.source(run, name))
	defer tail.Close()
	state, err := tail.Next(ctx, s.life.Done(), 0, true)
	if err != nil {
		return 0, err
	}
	r := s.from(logOf(run, name), chunks.From(at, state.Count))
	if !given {
		if err := give(r.next, nil); err != nil {
			return 0, err
		}
	}
	for {
		for r.next < state.Count {
			first := r.next
			page, err := r.read(ctx, state.Count)
			if err == nil {
				err = give(first, page)
			}
			if err != nil {
				return r.next, s.gone(ctx, run, err)
			}
		}
		if state.Over {
			return state.Count, nil
		}
		if state, err = tail.Next(ctx, s.life.Done(), r.next, false); err != nil {
			return r.next, err
		}
	}
}

// gone returns the error of who has met err in a stream: a 404 if its run was removed meanwhile.
func (s *Streams) gone(ctx context.Context, run string, err error) error {
	if !errors.Is(err, storage.ErrCorrupt) {
		return err
	}
	if not := s.known(ctx, run); not != nil {
		return not
	}
	return err
}

// source returns what the tail of a stream looks at.
func (s *Streams) source(run, name string) chunks.Source {
	log := logOf(run, name)
	var seen end
	return chunks.Source{
		Name: string(log.HeadKey),
		Keys: [][]byte{log.HeadKey},
		Look: func(ctx context.Context) (chunks.State, error) {
			h, err := s.headOf(ctx, run, name)
			if err != nil {
				return chunks.State{}, err
			}
			state := chunks.State{Count: h.Count, Over: h.Closed != ""}
			if state.Over {
				return state, nil
			}
			standing, err := world.StandingOf(ctx, s.store, run)
			if err != nil || standing != world.StandingEnded && standing != world.StandingRemoved {
				return state, err
			}
			if seen.at.IsZero() || seen.count != h.Count {
				seen = s.seenEnded(string(log.HeadKey), h.Count)
			}
			state.Over = time.Since(seen.at) >= s.quiet
			return state, nil
		},
	}
}

// seenEnded returns when the run of a stream was first seen to have ended, with so many chunks: now, unless it is known.
func (s *Streams) seenEnded(stream string, count uint64) end {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.ends[stream]
	if ok && e.count == count && time.Since(e.at) < endKept {
		return e
	}
	for other := range s.ends {
		if len(s.ends) < mostEnds {
			break
		}
		delete(s.ends, other)
	}
	e = end{time.Now(), count}
	s.ends[stream] = e
	return e
}

// newest returns the newest run with a stream of a name, or nothing if there is none.
func (s *Streams) newest(ctx context.Context, name string) (run string, err error) {
	list := keys.WorldStreamsNamed(name)
	list.Reverse, list.Limit = true, 1
	page, err := s.store.Scan(ctx, list)
	if err == nil && len(page) > 0 {
		run, err = keys.Last(page[0].Key)
	}
	return run, err
}

// named waits for a run with a stream of a name, and returns the newest one.
func (s *Streams) named(ctx context.Context, name string) (run string, err error) {
	tail := s.tails.Follow(chunks.Source{Name: string(keys.WorldStreamsNamed(name).Start), Look: func(ctx context.Context) (chunks.State, error) {
		run, err := s.newest(ctx, name)
		return chunks.State{Over: run != ""}, err
	}})
	defer tail.Close()
	if _, err := tail.Next(ctx, s.life.Done(), math.MaxUint64, false); err != nil {
		return "", err
	}
	return s.newest(ctx, name)
}
