package etcd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/storage"
)

// A watcher hears what other processes change. Every transaction that puts entries and
// is not urgent also puts a note of what it changes under one key, which every store watches. To watch the entries
// themselves would send their values to every process, and wake it at every renewal of a lease.
type watcher struct {
	store *Store

	mu      sync.Mutex
	running bool
	watches []*watch
}

type watch struct {
	prefix string
	some   chan struct{}
}

const (
	watchAgain = time.Second // pause before a watch that has ended begins again
	maxHeads   = 60          // of a note
	maxHead    = 100         // bytes
)

// Watch calls wake after other processes, or other stores of this process, changed something
// under prefix, until ctx is done. It also calls wake once at the beginning, and whenever it may
// have missed a change. Urgent batches, and those that only
// delete, do not wake it.
func (s *Store) Watch(ctx context.Context, prefix []byte, wake func()) error {
	return wrap("watch", s.watchPrefix(ctx, string(prefix), wake))
}

func (s *Store) watchPrefix(ctx context.Context, prefix string, wake func()) error {
	if err := s.begin(); err != nil {
		return err
	}
	x := &watch{prefix: prefix, some: make(chan struct{}, 1)}
	s.watch.add(x)
	s.calls.Done()
	defer s.watch.drop(x)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			return storage.ErrClosed
		case <-x.some:
			wake()
		}
	}
}

func (w *watcher) add(x *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches = append(w.watches, x)
	x.nudge()
	if !w.running {
		w.running = true
		w.store.running.Go(w.run)
	}
}

func (w *watcher) drop(x *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches = slices.DeleteFunc(w.watches, func(other *watch) bool { return other == x })
}

func (x *watch) nudge() {
	select {
	case x.some <- struct{}{}:
	default:
	}
}

// run watches until the store is closed.
func (w *watcher) run() {
	for ctx := w.store.ctx; ctx.Err() == nil; {
		w.listen(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(watchAgain):
		}
	}
}

// listen returns when the watch has ended: because the member has no leader, or because what it
// has missed was compacted.
func (w *watcher) listen(ctx context.Context) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for answer := range w.store.client.Watch(ctx, w.store.layout.changes, clientv3.WithCreatedNotify()) {
		switch {
		case answer.Err() != nil:
			return
		case answer.Created:
			w.tell([]string{""}) // changes may have been missed before
		}
		for _, e := range answer.Events {
			if from, heads, err := readNote(e.Kv.Value); err != nil {
				w.tell([]string{""})
			} else if from != w.store.id {
				w.tell(heads)
			}
		}
	}
}

// tell wakes the watches of prefixes that overlap with one of heads.
func (w *watcher) tell(heads []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.watches {
		if slices.ContainsFunc(heads, func(h string) bool {
			return strings.HasPrefix(x.prefix, h) || strings.HasPrefix(h, x.prefix)
		}) {
			x.nudge()
		}
	}
}

// note returns the operation that tells others what batches change.
func (w *watcher) note(batches ...storage.Batch) clientv3.Op {
	var heads []string
	for _, b := range batches {
		for _, o := range b.Ops {
			head := headOf(o.Key)
			if o.Kind == storage.DeleteRangeOp {
				head = "" // everything
			}
			if len(heads) <= maxHeads && !slices.Contains(heads, head) {
				heads = append(heads, head)
			}
		}
	}
	if len(heads) > maxHeads {
		heads = []string{""}
	}
	return clientv3.OpPut(w.store.layout.changes, string(appendNote(w.store.id, heads)))
}

// headOf returns the first two components of a key made by storage.AppendKey.
func headOf(key []byte) string {
	i := bytes.IndexByte(key, ':')
	if j := bytes.IndexByte(key[i+1:], ':'); j >= 0 {
		key = key[:i+1+j+1]
	}
	return string(key[:min(len(key), maxHead)])
}

// A note is the name of the store that sends it and heads of keys, each after its length.
func appendNote(from string, heads []string) (note []byte) {
	for _, part := range append([]string{from}, heads...) {
		note = binary.AppendUvarint(note, uint64(len(part)))
		note = append(note, part...)
	}
	return note
}

var errNote = errors.New("not a note of changes")

func readNote(note []byte) (from string, heads []string, err error) {
	var parts []string
	for len(note) > 0 {
		size, n := binary.Uvarint(note)
		if n <= 0 || size > uint64(len(note)-n) {
			return "", nil, errNote
		}
		parts = append(parts, string(note[n:n+int(size)]))
		note = note[n+int(size):]
	}
	if len(parts) == 0 {
		return "", nil, errNote
	}
	return parts[0], parts[1:], nil
}
