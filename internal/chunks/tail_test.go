package chunks

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/internal/follow"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A state that tests change.
type present struct {
	mu    sync.Mutex
	state State
	err   error
	looks int
	begun chan struct{} // receives when a look begins; nil: nobody waits
	go_   chan struct{} // the look goes on
}

func (p *present) look(context.Context) (State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looks++
	s, err := p.state, p.err
	if p.begun != nil {
		p.begun <- struct{}{}
		<-p.go_
	}
	return s, err
}

func (p *present) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.looks
}

func (p *present) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

func (p *present) set(s State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
}

// A tail looks after 250 ms, then after twice as long, up to a second, as long as nothing comes; and at once when a key
// is written in this process.
func TestTailLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := new(follow.Hub)
		s := follow.Store{Storage: new(memory.Store), Hub: hub}
		ts := &Tails{Hub: hub, Store: s}
		p := new(present)
		key := []byte("stream:o:words")
		r := ts.Follow(Source{Name: "a", Keys: [][]byte{key}, Look: p.look})
		synctest.Wait()
		for _, c := range []struct {
			after time.Duration
			looks int
		}{{0, 2}, {249 * time.Millisecond, 2}, {2 * time.Millisecond, 3}, {500 * time.Millisecond, 4}, {time.Second, 5}, {time.Second, 6}} {
			time.Sleep(c.after)
			synctest.Wait()
			if p.count() > c.looks || p.count() < c.looks-1 {
				t.Errorf("%d looks, want %d", p.count(), c.looks)
			}
		}
		before := p.count()
		if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(key, nil)}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if p.count() != before+1 {
			t.Errorf("%d looks after a write, want %d", p.count(), before+1)
		}
		p.set(State{Count: 1})
		if s, err := r.Next(ctx, nil, 0, false); err != nil || s.Count != 1 {
			t.Errorf("%+v, %v", s, err)
		}
		before = p.count()
		time.Sleep(251 * time.Millisecond)
		synctest.Wait()
		if p.count() != before+1 {
			t.Errorf("%d looks within 250 ms of a change, want %d", p.count(), before+1)
		}
		r.Close()
		if ts.open["a"] != nil {
			t.Error("the tail is open")
		}
		before = p.count()
		time.Sleep(time.Minute)
		if p.count() != before {
			t.Error("a tail without readers looks")
		}
	})
}

// A reader uses nothing that was read before it came: what was over then may be open again.
func TestTailKnowsNothingOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := &Tails{Hub: new(follow.Hub), Store: new(memory.Store)}
		p := &present{state: State{Count: 3, Over: true}}
		source := Source{Name: "a", Look: p.look}
		first := ts.Follow(source)
		defer first.Close()
		if s, err := first.Next(ctx, nil, 3, false); err != nil || !s.Over {
			t.Fatalf("%+v, %v", s, err)
		}
		p.set(State{Count: 3})
		second := ts.Follow(source)
		defer second.Close()
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if s, err := second.Next(limited, nil, 3, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second reader is told %+v, %v", s, err)
		}
		if s, err := second.Next(ctx, nil, 3, true); err != nil || s.Over || s.Count != 3 {
			t.Errorf("now it is %+v, %v", s, err)
		}
		closing := make(chan struct{})
		close(closing)
		if _, err := second.Next(ctx, closing, 3, false); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("closing: %v", err)
		}
	})
}

// What a look had read before a reader came does not count, although the look ends afterwards.
func TestTailLookInProgress(t *testing.T) {
	ts := &Tails{Hub: new(follow.Hub), Store: new(memory.Store)}
	p := &present{state: State{Count: 3, Over: true}, begun: make(chan struct{}), go_: make(chan struct{})}
	source := Source{Name: "a", Look: p.look}
	first := ts.Follow(source)
	<-p.begun // it has read that the log is over
	second := ts.Follow(source)
	p.state.Over = false // while the look holds the mutex
	p.go_ <- struct{}{}
	<-p.begun
	p.begun = nil
	p.go_ <- struct{}{}
	if s, err := second.Next(ctx, nil, 0, false); err != nil || s.Over {
		t.Errorf("told %+v, %v", s, err)
	}
	first.Close()
	second.Close()
}

// An error of a look ends the wait of those who are there, and nobody else's.
func TestTailError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := &Tails{Hub: new(follow.Hub), Store: new(memory.Store)}
		broke := errors.New("broke")
		p := &present{err: broke}
		first := ts.Follow(Source{Name: "a", Look: p.look})
		defer first.Close()
		if _, err := first.Next(ctx, nil, 0, false); err != broke {
			t.Errorf("told %v", err)
		}
		p.fail(nil)
		second := ts.Follow(Source{Name: "a", Look: p.look})
		defer second.Close()
		if s, err := second.Next(ctx, nil, 0, true); err != nil || s.Count != 0 {
			t.Errorf("told %+v, %v", s, err)
		}
	})
}

// What is appended in this process is learned without a look. Everything else takes one: that the log was closed, or belongs
// to something new, that something else was written, or that nobody knows whether something was.
func TestTailLearns(t *testing.T) {
	for name, c := range map[string]struct {
		write         func(s storage.Storage, h *Head) *Head
		break_, looks bool // the commit ends with an error; it takes a look
	}{
		"a chunk": {write: func(s storage.Storage, h *Head) *Head { return appended(t, s, h, some(0, 1)) }},
		"a chunk, and the end": {looks: true, write: func(s storage.Storage, h *Head) *Head {
			a, err := h.Append(some(0, 1))
			a.Batch.Ops = append(a.Batch.Ops, storage.Put([]byte("end"), nil))
			if err = errors.Join(err, s.Commit(ctx, a.Batch)); err != nil {
				t.Fatal(err)
			}
			return a.Next
		}},
		"a chunk, perhaps": {break_: true, looks: true, write: func(s storage.Storage, h *Head) *Head {
			a, err := h.Append(some(0, 1))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Commit(ctx, a.Batch); err == nil || errors.Is(err, storage.ErrConflict) {
				t.Fatalf("the outcome is known: %v", err)
			}
			return a.Next
		}},
		"the last one, and that it is closed": {looks: true, write: func(s storage.Storage, h *Head) *Head {
			h = appended(t, s, h, some(0, 1))
			synctest.Wait() // it is learned
			next, conditions, ops, err := h.Close("2")
			if err = errors.Join(err, s.Commit(ctx, storage.Batch{If: conditions, Ops: ops})); err != nil {
				t.Fatal(err)
			}
			return next
		}},
		"a chunk of another run": {looks: true, write: func(s storage.Storage, h *Head) *Head {
			return appended(t, s, read(t, s, Of("o", "words", "g2")), some(0, 1))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, fault := new(follow.Hub), storagetest.None
				s := follow.Store{Hub: hub, Storage: storagetest.NewFaulty(new(memory.Store), func(storagetest.Call) storagetest.Fault { return fault })}
				head := read(t, s, Of("o", "words", "g1"))
				p := &present{state: State{Generation: "g1"}}
				r := (&Tails{Hub: hub, Store: s, Pause: time.Hour}).Follow(Source{Name: "a", Keys: [][]byte{head.log.HeadKey, []byte("end")}, Head: head.log.HeadKey, Look: p.look})
				defer r.Close()
				synctest.Wait()
				before := p.count()
				if c.break_ {
					fault = storagetest.ErrorAfter
				}
				after := c.write(s, head)
				p.set(State{Generation: after.Generation, Count: after.Count, Over: after.Closed != ""})
				synctest.Wait()
				if looks := p.count() - before; c.looks != (looks > 0) {
					t.Errorf("it took %d looks", looks)
				}
				want := p.state
				if c.looks { // the look may have come before the state of the test was set
					r.Refresh()
				}
				if got, err := r.Next(ctx, nil, want.Count-1, c.looks); err != nil || got != want {
					t.Errorf("told %+v, %v, want %+v", got, err, want)
				}
			})
		})
	}
}

// tailed returns a store with the empty log of generation g, and its tail, which learns from the head.
func tailed(t *testing.T, pause time.Duration, look func(context.Context) (State, error)) (storage.Storage, *Head, *Tail) {
	hub := new(follow.Hub)
	s := follow.Store{Hub: hub, Storage: new(memory.Store)}
	head := read(t, s, Of("o", "words", "g"))
	return s, head, (&Tails{Hub: hub, Store: s, Pause: pause}).Follow(Source{Name: "a", Keys: [][]byte{head.log.HeadKey}, Head: head.log.HeadKey, Look: look})
}

// While chunks are learned, a tail looks as often as when it finds them: somebody else may append, too.
func TestTailLooksWhileItLearns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &present{state: State{Generation: "g"}}
		s, head, r := tailed(t, 0, p.look)
		defer r.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		for i := range 100 {
			before := p.count()
			head = appended(t, s, head, some(i, 1))
			p.set(State{Generation: "g", Count: head.Count})
			if got, err := r.Next(ctx, nil, uint64(i), false); err != nil || got.Count != head.Count {
				t.Fatalf("told %+v, %v", got, err)
			}
			if i%10 > 0 {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			time.Sleep(260 * time.Millisecond)
			synctest.Wait()
			if looks := p.count() - before; looks == 0 || looks > 2 {
				t.Errorf("%d looks within 260 ms of chunk %d", looks, i)
			}
		}
	})
}

// A tail is told by the log's writer and by the store's watcher, in either order, and does the same: it learns what was put
// before it looks, and what the look has found is not news afterwards.
func TestTailIsToldTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &present{state: State{Generation: "g"}}
		s, head, r := tailed(t, time.Hour, func(ctx context.Context) (State, error) {
			defer time.Sleep(time.Second)
			return p.look(ctx)
		})
		defer r.Close()
		write := func(chunks int) {
			for range chunks {
				head = appended(t, s, head, some(int(head.Count), 1))
			}
			p.set(State{Generation: "g", Count: head.Count})
		}
		for range 30 {
			time.Sleep(2 * time.Second)
			r.nudge()
			synctest.Wait() // it is looking
			write(1)
			r.nudge()
			began := time.Now()
			if got, err := r.Next(ctx, nil, head.Count-1, false); err != nil || got.Count != head.Count || time.Since(began) > time.Second {
				t.Fatalf("told %+v, %v, after %v, want it before the second look", got, err, time.Since(began))
			}
			synctest.Wait() // it is looking again
			looks := p.count()
			write(2) // too many to learn
			r.nudge()
			time.Sleep(3 * time.Second)
			write(1)
			synctest.Wait()
			if more := p.count() - looks; more != 1 {
				t.Fatalf("%d looks, want one for two chunks, and none for a chunk that is told", more)
			}
		}
	})
}
