package follow

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/storage"
)

// What a Hub keeps of one log at most, but for the entry that was appended last.
const (
	mostKept  = 1000    // entries
	mostBytes = 1 << 20 // of their values
)

// mostHeard is how many bytes a value has at most that Heard returns.
const mostHeard = 1 << 10

// A Hub knows who follows which log. The zero Hub is ready to use.
type Hub struct {
	followers atomic.Int64 // so that a commit costs nothing while there are none

	mu   lock.Mutex
	logs map[string]*log               // by the prefix of their keys
	keys map[string]map[*Follower]bool // who is told of a write to one key
}

// A log is followed by somebody.
type log struct {
	followers map[*Follower]bool
	kept      []storage.Entry // what was appended last, in order
	bytes     int             // of the values of kept
}

// A Follower follows one log, or some keys.
type Follower struct {
	hub    *Hub
	prefix string
	keys   [][]byte // instead of prefix
	some   chan struct{}

	// Guarded by Hub.mu, and only of a follower of keys.
	heard  map[string][]byte // the first value of each key since Heard
	missed bool              // something may have been written that is not in heard
}

// Follow begins to follow the log whose keys are prefix and a number. Call Close at the end.
func (h *Hub) Follow(prefix []byte) *Follower {
	f := &Follower{hub: h, prefix: string(prefix), some: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.logs == nil {
		h.logs = map[string]*log{}
	}
	l := h.logs[f.prefix]
	if l == nil {
		l = &log{followers: map[*Follower]bool{}}
		h.logs[f.prefix] = l
	}
	l.followers[f] = true
	h.followers.Add(1)
	return f
}

// Hear begins to follow keys. Call Close at the end.
func (h *Hub) Hear(keys ...[]byte) *Follower {
	f := &Follower{hub: h, keys: append([][]byte{}, keys...), some: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keys == nil {
		h.keys = map[string]map[*Follower]bool{}
	}
	for _, k := range keys {
		if h.keys[string(k)] == nil {
			h.keys[string(k)] = map[*Follower]bool{}
		}
		h.keys[string(k)][f] = true
	}
	h.followers.Add(1)
	return f
}

// Close ends f.
func (f *Follower) Close() {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if f.keys != nil {
		for _, k := range f.keys {
			delete(f.hub.keys[string(k)], f)
			if len(f.hub.keys[string(k)]) == 0 {
				delete(f.hub.keys, string(k))
			}
		}
		f.hub.followers.Add(-1)
		return
	}
	l := f.hub.logs[f.prefix]
	delete(l.followers, f)
	if len(l.followers) == 0 {
		delete(f.hub.logs, f.prefix)
	}
	f.hub.followers.Add(-1)
}

// Some receives after something may have been appended to the log, or written to the keys.
func (f *Follower) Some() <-chan struct{} { return f.some }

// Nudge has Some receive.
func (f *Follower) Nudge() {
	select {
	case f.some <- struct{}{}:
	default:
	}
}

// Heard returns what Stores of the Hub have put under the keys that f hears, since it was called before. all is false if
// they may have put something else there: a large value, another value under the same key, before or after this one, or what
// a commit had whose outcome was not known. Deletions do not count.
func (f *Follower) Heard() (written map[string][]byte, all bool) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	written, all = f.heard, !f.missed
	f.heard, f.missed = nil, false
	return written, all
}

// Kept returns the value of a key of the log, if it was appended lately by a Store of the Hub. It may have
// been deleted since.
func (f *Follower) Kept(key []byte) (value []byte, ok bool) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	kept := f.hub.logs[f.prefix].kept
	i := slices.IndexFunc(kept, func(e storage.Entry) bool { return bytes.Equal(e.Key, key) })
	if i < 0 {
		return nil, false
	}
	return kept[i].Value, true
}

// tell tells of a batch that was committed. If certain is false, nobody knows whether it was.
func (h *Hub) tell(ops []storage.Op, certain bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range ops {
		if o.Kind != storage.PutOp {
			continue
		}
		for f := range h.keys[string(o.Key)] {
			f.hear(o, certain)
			f.Nudge()
		}
		l := h.logs[string(o.Key[:bytes.LastIndexByte(o.Key, ':')+1])]
		if l == nil {
			continue
		}
		if certain {
			l.keep(storage.Entry{Key: bytes.Clone(o.Key), Value: bytes.Clone(o.Value)})
		}
		for f := range l.followers {
			f.Nudge()
		}
	}
}

// hear notes what was written to one of the keys of f.
func (f *Follower) hear(o storage.Op, certain bool) {
	if _, again := f.heard[string(o.Key)]; again || !certain || len(o.Value) > mostHeard {
		f.missed = true
		return
	}
	if f.heard == nil {
		f.heard = map[string][]byte{}
	}
	f.heard[string(o.Key)] = bytes.Clone(o.Value)
}

func (l *log) keep(e storage.Entry) {
	l.kept = append(l.kept, e)
	l.bytes += len(e.Value)
	for len(l.kept) > mostKept || l.bytes > mostBytes && len(l.kept) > 1 {
		l.bytes -= len(l.kept[0].Value)
		l.kept[0] = storage.Entry{} // so that it is not held
		l.kept = l.kept[1:]
	}
}

// A Store tells a Hub of its commits.
type Store struct {
	storage.Storage
	Hub *Hub
}

// Unwrap returns the store that s is on.
func (s Store) Unwrap() storage.Storage { return s.Storage }

// Commit is storage.Storage.Commit.
func (s Store) Commit(ctx context.Context, b storage.Batch) error {
	err := s.Storage.Commit(ctx, b)
	s.tell(b.Ops, err)
	return err
}

// tell tells the Hub of a batch, whose commit returned err.
func (s Store) tell(ops []storage.Op, err error) {
	if s.Hub.followers.Load() > 0 && !refused(err) {
		s.Hub.tell(ops, err == nil)
	}
}

// A transactor is a Store that has transactions.
type transactor struct {
	Store
	on storage.Transactor
}

// On returns a Store on s. It has transactions if s has them.
func On(s storage.Storage, h *Hub) storage.Storage {
	if t, ok := storage.As[storage.Transactor](s); ok {
		return transactor{Store{s, h}, t}
	}
	return Store{s, h}
}

// Transact is storage.Transactor.Transact.
func (t transactor) Transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	var b storage.Batch
	err := t.on.Transact(ctx, func(ctx context.Context) (_ storage.Batch, err error) {
		b, err = f(ctx)
		return b, err
	})
	t.tell(b.Ops, err)
	return err
}

// refused reports whether nothing of a batch was applied.
func refused(err error) bool {
	return errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrInvalidBatch) || errors.Is(err, errors.ErrUnsupported)
}
