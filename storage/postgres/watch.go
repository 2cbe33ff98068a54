package postgres

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/storage"
)

// A watcher listens for notifications on its own connection. It connects when the first
// watch is added.
type watcher struct {
	store *Store
	stop  context.CancelFunc
	ctx   context.Context

	mu      sync.Mutex
	running bool
	watches []*watch
}

type watch struct {
	prefix string
	some   chan struct{}
}

const (
	listenAgain = time.Second      // pause before reconnecting
	listenCheck = 30 * time.Second // silence after which the connection is pinged
)

func newWatcher(s *Store) *watcher {
	w := &watcher{store: s}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// Watch calls wake after other processes, or other stores of this process, changed
// something under prefix, until ctx is done. It also calls wake once at the beginning, and
// whenever it may have missed a change. Urgent batches do not wake it. With NoListen it
// never calls wake.
func (s *Store) Watch(ctx context.Context, prefix []byte, wake func()) error {
	return wrap("watch", s.watchPrefix(ctx, string(prefix), wake))
}

func (s *Store) watchPrefix(ctx context.Context, prefix string, wake func()) error {
	if err := s.queue.open(); err != nil {
		return err
	}
	if s.watch == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	x := &watch{prefix: prefix, some: make(chan struct{}, 1)}
	if !s.watch.add(x) {
		return storage.ErrClosed
	}
	defer s.watch.drop(x)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.watch.ctx.Done():
			return storage.ErrClosed
		case <-x.some:
			wake()
		}
	}
}

func (w *watcher) shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop()
}

// add returns false after shut.
func (w *watcher) add(x *watch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return false
	}
	w.watches = append(w.watches, x)
	x.nudge()
	if !w.running {
		w.running = true
		w.store.running.Go(w.run)
	}
	return true
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

// run listens until shut, and reconnects when the connection is lost.
func (w *watcher) run() {
	for w.ctx.Err() == nil {
		w.listen()
		select {
		case <-w.ctx.Done():
		case <-time.After(listenAgain):
		}
	}
}

// listen returns when the connection is lost.
func (w *watcher) listen() {
	c := w.store.newSession(laneLockTimeout)
	if c.connect(w.ctx) != nil {
		return
	}
	defer c.close()
	if _, err := c.conn.Exec(w.ctx, `LISTEN `+pgx.Identifier{w.store.notes.channel}.Sanitize()); err != nil {
		return
	}
	w.tell([]string{""}) // changes may have been missed before the LISTEN
	for {
		ctx, cancel := context.WithTimeout(w.ctx, listenCheck)
		n, err := c.conn.WaitForNotification(ctx)
		quiet := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			sender, heads, _ := strings.Cut(n.Payload, "\n")
			if sender != w.store.notes.sender {
				w.tell(strings.Split(heads, "\n"))
			}
		case w.ctx.Err() != nil || !quiet || c.ping(w.ctx) != nil:
			return
		}
	}
}

func (c *session) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return c.conn.Ping(ctx)
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
