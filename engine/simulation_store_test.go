package engine_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// An opening is how one process has the store that all share. Each of its calls
// waits until the simulation releases it.
type opening struct {
	*simulation
	name  string
	n     int
	build int          // newest version of the change in its workflow
	skew  atomic.Int64 // of its wall clock
	ids   int          // that were made
	ahead atomic.Int64 // the highest skew

	free   bool      // its calls do not wait
	dead   bool      // nothing of it is heard any more
	paused time.Time // until when none of its calls is released
	awake  []*watching
}

// A watching is a Watch under way.
type watching struct {
	prefix []byte
	wake   func()
}

// A turn is a call to the store that waits to be released.
type turn struct {
	o      *opening
	ctx    context.Context
	call   storagetest.Call
	where  string // what it is about: the same in every play of a seed
	who    string // the functions that make it, likewise
	answer chan reply
	reply  *reply // it has been done, and its answer is on the way
}

// A reply is what a call comes to.
type reply struct {
	value []byte
	page  []storage.Entry
	err   error
}

func (o *opening) Get(ctx context.Context, key []byte) ([]byte, error) {
	r := o.await(ctx, storagetest.Call{Method: "Get", Key: key})
	return r.value, r.err
}

func (o *opening) Scan(ctx context.Context, in storage.Range) ([]storage.Entry, error) {
	r := o.await(ctx, storagetest.Call{Method: "Scan", Range: in})
	return r.page, r.err
}

func (o *opening) Commit(ctx context.Context, b storage.Batch) error {
	b = kept(b) // it may land late
	return o.await(ctx, storagetest.Call{Method: "Commit", Batch: b}).err
}

func (o *opening) Capabilities() storage.Capabilities {
	c := o.store.Capabilities()
	c.Shared = true
	return c
}

func (o *opening) Close() error { return nil }

// Watch wakes when the simulation does not drop that.
func (o *opening) Watch(ctx context.Context, prefix []byte, wake func()) error {
	w := &watching{prefix, wake}
	o.mu.Lock()
	o.awake = append(o.awake, w)
	o.mu.Unlock()
	<-ctx.Done()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.awake = slices.DeleteFunc(o.awake, func(other *watching) bool { return other == w })
	return ctx.Err()
}

// await has a call wait for its turn.
func (o *opening) await(ctx context.Context, c storagetest.Call) reply {
	if err := ctx.Err(); err != nil {
		return reply{err: err}
	}
	t := &turn{o: o, ctx: ctx, call: c, answer: make(chan reply, 1)}
	t.where, t.who = t.place(), callers()
	o.laws.sent(c.Batch)
	o.mu.Lock()
	switch {
	case o.dead:
		o.mu.Unlock()
		return reply{err: storagetest.ErrCrashed}
	case o.free:
		o.mu.Unlock()
		return t.apply(o.store)
	}
	o.parked = append(o.parked, t)
	o.mu.Unlock()
	return <-t.answer
}

// callerKey is that of the client's name in a context.
type callerKey struct{}

// place names what a call is about, and for whom.
func (t *turn) place() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%02d %s", t.o.n, t.call.Method)
	if caller := t.ctx.Value(callerKey{}); caller != nil {
		fmt.Fprintf(&b, " by %s", caller)
	}
	switch t.call.Method {
	case "Get":
		fmt.Fprintf(&b, " %s", t.call.Key)
	case "Scan":
		fmt.Fprintf(&b, " %s %s %d", t.call.Range.Start, t.call.Range.End, t.call.Range.Limit)
	}
	for _, o := range t.call.Batch.Ops {
		b.WriteByte(' ')
		b.Write(nameless(o.Key))
	}
	return b.String()
}

// nameless is a key without the id that tells it from others of the same moment.
func nameless(key []byte) []byte {
	if bytes.HasPrefix(key, []byte("todo:")) || bytes.HasPrefix(key, []byte("wake:")) {
		return key[:bytes.LastIndexByte(key, ':')]
	}
	return key
}

// callers are the functions that led to a call of the store.
func callers() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs[:])])
	var names []string
	for {
		f, more := frames.Next()
		names = append(names, f.Function)
		if !more {
			return strings.Join(names, " ")
		}
	}
}

// sort puts the turns in an order that does not depend on who was faster. The caller
// has s.mu.
func (s *simulation) sort() {
	slices.SortStableFunc(s.parked, func(a, b *turn) int {
		return cmp.Or(cmp.Compare(a.where, b.where), cmp.Compare(a.who, b.who))
	})
}

// apply makes the call.
func (t *turn) apply(s storage.Storage) (r reply) {
	switch t.call.Method {
	case "Get":
		r.value, r.err = s.Get(context.Background(), t.call.Key)
	case "Scan":
		r.page, r.err = s.Scan(context.Background(), t.call.Range)
	default:
		r.err = s.Commit(context.Background(), t.call.Batch)
	}
	return r
}

// ready are the turns that may be released, in an order that does not depend on
// who was faster.
func (s *simulation) ready() (ready []*turn) {
	for s.withdraw() {
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.parked { // withdraw has sorted them
		if held := s.seized != nil && s.seized.t == t; !held && !t.o.paused.After(time.Now()) {
			ready = append(ready, t)
		}
	}
	return ready
}

// withdraw ends a read that nobody waits for any more, when nothing else moves. It
// says whether there was any.
func (s *simulation) withdraw() bool {
	synctest.Wait()
	s.mu.Lock()
	s.sort()
	parked := slices.Clone(s.parked)
	s.mu.Unlock()
	for _, t := range parked {
		if t.call.Method != "Commit" && t.ctx.Err() != nil {
			s.answer(t, reply{err: t.ctx.Err()})
			return true
		}
	}
	return false
}

// answer releases t with r.
func (s *simulation) answer(t *turn, r reply) {
	s.mu.Lock()
	s.parked = slices.DeleteFunc(s.parked, func(other *turn) bool { return other == t })
	s.mu.Unlock()
	t.answer <- r
}

// do makes the call of t, and holds what it has done against the laws.
func (s *simulation) do(t *turn) reply {
	if t.call.Method != "Commit" {
		return t.apply(s.store)
	}
	before := s.laws.before(t.call.Batch)
	r := t.apply(s.store)
	if r.err == nil {
		s.laws.applied(t.o, t.ctx.Value(callerKey{}) != nil, t.call.Batch, before)
		s.wake(t.call.Batch)
	}
	if errors.Is(r.err, storage.ErrConflict) && s.laws.stale(t.o, t.call.Batch) {
		s.meet("stale commits refused")
	}
	return r
}

// wake tells those who watch what b has changed, unless that is dropped.
func (s *simulation) wake(b storage.Batch) {
	s.mu.Lock()
	var told []func()
	for _, h := range s.hosts {
		for _, w := range h.awake {
			hit := slices.ContainsFunc(b.Ops, func(o storage.Op) bool { return bytes.HasPrefix(o.Key, w.prefix) })
			switch {
			case !hit:
			case s.stormy && s.dice.IntN(3) == 0:
				s.met["wake-ups dropped"]++
			default:
				told = append(told, w.wake)
			}
		}
	}
	s.mu.Unlock()
	for _, wake := range told {
		wake()
		synctest.Wait()
	}
}

// release lets one of the turns go on: as it should, or as a storm has it.
func (s *simulation) release(t *turn) {
	how := "ok"
	if s.stormy && s.dice.IntN(s.odds) == 0 {
		how = oneOfThese(s.dice, "error before", "error after", "answer late", "lands late")
	}
	commit := t.call.Method == "Commit"
	switch {
	case t.reply != nil:
		how = "answered"
		s.answer(t, *t.reply)
	case t.ctx.Err() != nil && s.dice.IntN(2) == 0:
		how = "withdrawn"
		s.answer(t, reply{err: t.ctx.Err()})
	case how == "error before":
		s.answer(t, reply{err: storagetest.ErrInjected})
	case how == "error after" && commit:
		s.do(t)
		s.answer(t, reply{err: storagetest.ErrInjected})
	case how == "answer late":
		r := s.do(t)
		t.reply = &r
	case how == "lands late" && commit:
		s.late = append(s.late, t)
		s.answer(t, reply{err: storagetest.ErrInjected})
	default:
		how = "ok"
		r := s.do(t)
		if errors.Is(r.err, storage.ErrConflict) {
			how = "refused"
		}
		s.answer(t, r)
	}
	if how != "ok" {
		s.meet(how)
	}
	s.note(how, t.where)
}

// land has a commit land that its sender was given no answer to.
func (s *simulation) land(i int) {
	t := s.late[i]
	s.late = slices.Delete(s.late, i, i+1)
	how := "landed late"
	if r := s.do(t); r.err != nil {
		how = "refused late"
	}
	s.meet(how)
	s.note(how, t.where)
}

// cut ends the calls of a process that is dead: what it has sent may land or not.
func (s *simulation) cut(o *opening) {
	s.mu.Lock()
	s.sort()
	parked := slices.Clone(s.parked)
	s.mu.Unlock()
	for _, t := range parked {
		if t.o != o {
			continue
		}
		if t.call.Method == "Commit" && t.reply == nil && s.stormy {
			switch s.dice.IntN(3) {
			case 0:
				s.do(t)
			case 1:
				s.late = append(s.late, t)
			}
		}
		s.answer(t, reply{err: storagetest.ErrCrashed})
	}
}

// newID is an id that o makes: the same in every play of a seed.
func (o *opening) newID() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ids++
	return makeULID(time.Now(), o.seed, o.n, o.ids)
}

// lives says that o's process was not killed.
func (o *opening) lives() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.dead
}

// setSkew sets the wall clock of o's host.
func (o *opening) setSkew(by time.Duration) {
	o.skew.Store(int64(by))
	o.ahead.Store(max(o.ahead.Load(), int64(by)))
}

// wall is the wall clock of o's host.
func (o *opening) wall() time.Time { return time.Now().Add(time.Duration(o.skew.Load())) }

var _ storage.Watcher = (*opening)(nil)

// engineOf is the incarnation in the key of an engine's record, or "".
func engineOf(key []byte) string {
	if !bytes.HasPrefix(key, keys.Engines().Start) {
		return ""
	}
	incarnation, err := keys.Last(key)
	if err != nil {
		return ""
	}
	return incarnation
}
