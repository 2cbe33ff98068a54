package world

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/storage"
)

const (
	mostTogether     = 64               // calls about one run that share a commit
	bytesTogether    = 1 << 20          // of their data
	togetherPatience = 30 * time.Second // for one commit of several calls, since none of their contexts may end it
)

// lines are the calls of Create of this process, by the run that they are about.
type lines struct {
	mu    lock.Mutex
	byRun map[string]*line
}

// A line has the calls about one run. Whoever has the turn makes those that wait, so that they share commits instead of
// refusing each other's.
type line struct {
	users   int // guarded by lines.mu
	waiting []*creation
	turn    chan struct{}
}

// A creation is a call of Create.
type creation struct {
	ctx    context.Context
	r      *Request
	fields data

	done   chan struct{} // closed when the fields below are set
	answer *Answered
	err    error
}

// inLine makes a call when it is its turn, or has it made by another call about the run.
func (w *World) inLine(ctx context.Context, r *Request, fields data) (*Answered, error) {
	c := &creation{ctx: ctx, r: r, fields: fields, done: make(chan struct{})}
	l := w.lines.join(r.RunID, c)
	defer w.lines.leave(r.RunID, l)
	select {
	case <-c.done:
		return c.answer, c.err
	case <-ctx.Done():
		w.lines.withdraw(l, c)
		return nil, w.failed(r, context.Cause(ctx)) // it may be that it is being made
	case l.turn <- struct{}{}:
	}
	defer func() { <-l.turn }()
	for {
		select {
		case <-c.done:
			return c.answer, c.err
		default:
			w.together(w.lines.take(l))
		}
	}
}

func (ls *lines) join(run string, c *creation) *line {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byRun[run]
	if l == nil {
		l = &line{turn: make(chan struct{}, 1)}
		ls.byRun[run] = l
	}
	l.users++
	l.waiting = append(l.waiting, c)
	return l
}

func (ls *lines) leave(run string, l *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(ls.byRun, run)
	}
}

func (ls *lines) withdraw(l *line, c *creation) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(other *creation) bool { return other == c })
}

// take returns the calls that are made together next.
func (ls *lines) take(l *line) []*creation {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	n, bytes := 0, 0
	for n < min(len(l.waiting), mostTogether) {
		if bytes += len(l.waiting[n].r.Data); n > 0 && bytes > bytesTogether {
			break
		}
		n++
	}
	group := slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	return group
}

// together makes calls about one run. Each is decided on what those before it did, and all are committed at once. What is
// answered, and what is refused, is told after that.
func (w *World) together(group []*creation) {
	defer func() { // some are left if the store has panicked
		for _, c := range group {
			c.answer, c.err = nil, w.failed(c.r, errors.New("the store has panicked"))
			close(c.done)
		}
	}()
	presume := true
	for try := 0; len(group) > 0; try++ {
		if len(group) == 1 {
			c := group[0]
			c.answer, c.err = w.create(c.ctx, c.r, c.fields)
			close(c.done)
			group = nil
			return
		}
		made, err := w.stageAndCommit(group, presume)
		presume = err == nil
		switch {
		case err != nil && errors.Is(err, errAnew): // another process has changed the run
			since := group[0].r.since // the others were decided on events of the group, too
			for _, c := range group {
				if !c.r.Retry {
					c.r.Retry, c.r.since = true, since
				}
			}
			backoff.Wait(context.Background(), time.Duration(min(try, 20))*time.Millisecond)
			continue
		case err != nil:
			for _, c := range group[:made] {
				if _, refused := errors.AsType[*Error](c.err); refused || c.err == nil { // also a refusal rests on what is not there
					c.answer, c.err = nil, w.failed(c.r, err)
				}
			}
		}
		for _, c := range group[:made] {
			close(c.done)
		}
		group = group[made:]
	}
}

// errAnew says that nothing was committed, and that all is to be decided anew.
var errAnew = errors.New("world: decide anew")

// stageAndCommit makes the first calls of group, as many as fit into one batch, and at least one. It sets their answers, which hold
// if the error is nil. If presume is true, it presumes what create does. The conditions of what is committed are then those of
// the refusals, too, and if nothing is committed, all are decided anew.
func (w *World) stageAndCommit(group []*creation, presume bool) (made int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(group[0].ctx), togetherPatience)
	defer cancel()
	run := group[0].r.RunID
	tx := stage.New(w.store)
	in := w.In(&serial{Tx: tx, presume: presume})
	if in.presumes = presume; presume {
		if h := w.heads.last(run); h != nil {
			tx.Presume(keys.World(run), h.raw)
		}
	}
	for _, c := range group {
		if c.answer, c.err = nil, c.ctx.Err(); c.err == nil { // else nobody waits for it
			c.answer, c.err = in.create(ctx, c.r, c.fields)
		}
		switch _, large := errors.AsType[*stage.TooLargeError](c.err); {
		case large && made == 0:
			c.answer, c.err = w.create(c.ctx, c.r, c.fields) // it does not fit into any batch, and is told so
			return 1, nil
		case large:
			return made, w.commitStaged(ctx, run, tx, presume)
		case errors.Is(c.err, stage.ErrStale):
			return 0, errAnew
		case errors.Is(c.err, storage.ErrAborted): // the store could not be read, and nothing is committed
			return made + 1, c.err
		}
		made++
	}
	return made, w.commitStaged(ctx, run, tx, presume)
}

// commitStaged commits what was staged. Its first event tells whether an unknown outcome was a commit.
func (w *World) commitStaged(ctx context.Context, run string, tx *stage.Tx, presumed bool) error {
	b, err := tx.Batch()
	if err != nil {
		return err
	}
	if len(b.Ops) == 0 {
		if presumed {
			return errAnew
		}
		return nil
	}
	i := slices.IndexFunc(b.Ops, func(o storage.Op) bool {
		parts, err := storage.SplitKey(o.Key)
		return err == nil && len(parts) == 4 && parts[0] == "world" && parts[2] == "ev"
	})
	err = w.commit(ctx, b, b.Ops[i])
	w.heads.keepStaged(run, b, err)
	if errors.Is(err, storage.ErrConflict) {
		return errAnew
	}
	return err
}

// A serial is a stage.Tx that several goroutines may read.
type serial struct {
	*stage.Tx
	presume bool // conditions hold, unless what is staged says otherwise
	mu      sync.Mutex
}

func (s *serial) Commit(ctx context.Context, b storage.Batch) error {
	if s.presume {
		return s.Tx.Add(ctx, b)
	}
	return s.Tx.Commit(ctx, b)
}

func (s *serial) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Tx.Get(ctx, key)
}

func (s *serial) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Tx.Scan(ctx, r)
}
