package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// A notifier tells other processes what was committed. It sends after the commit, because
// a NOTIFY inside a transaction makes all commits of the database wait for each other. It
// combines the changes within notifyPause. If sending fails, the changes are not sent
// again.
type notifier struct {
	store   *Store
	channel string
	sender  string // identifies this store, so that it ignores its own notifications
	some    chan struct{}
	stop    context.CancelFunc
	ctx     context.Context

	mu    sync.Mutex
	heads map[string]struct{} // prefixes of the keys that were changed
	all   bool                // too many to list
}

const (
	notifyPause   = 20 * time.Millisecond
	notifyTimeout = 2 * time.Second

	// A notification has at most 8,000 bytes.
	maxHeads = 60
	maxHead  = 100
)

func newNotifier(s *Store) *notifier {
	h := fnv.New64a()
	h.Write([]byte(s.options.quoted()))
	n := &notifier{
		store:   s,
		channel: fmt.Sprintf("weft_%x", h.Sum64()),
		sender:  rand.Text(),
		some:    make(chan struct{}, 1),
		heads:   map[string]struct{}{},
	}
	n.ctx, n.stop = context.WithCancel(context.Background())
	return n
}

func (n *notifier) shut() { n.stop() }

// add records what a group changed.
func (n *notifier) add(r *rows) {
	n.mu.Lock()
	for i := range r.list {
		if n.all {
			break
		}
		if x := &r.list[i]; x.changed {
			head := headOf(x.key)
			if _, ok := n.heads[string(head)]; !ok {
				n.heads[string(head)] = struct{}{}
			}
			n.all = len(n.heads) > 10*maxHeads || len(head) == 0
		}
	}
	n.mu.Unlock()
	select {
	case n.some <- struct{}{}:
	default:
	}
}

// headOf returns the first two components of a key made by storage.AppendKey. For other
// keys it returns nil, the prefix of every key.
func headOf(key []byte) []byte {
	i := bytes.IndexByte(key, ':')
	if j := bytes.IndexByte(key[i+1:], ':'); j >= 0 {
		key = key[:i+1+j+1]
	}
	if len(key) > maxHead {
		key = key[:maxHead]
	}
	for _, c := range key {
		if c <= ' ' || c >= 0x7f {
			return nil
		}
	}
	return key
}

// run sends notifications until it is stopped.
func (n *notifier) run() {
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.some:
		}
		n.send()
		select {
		case <-n.ctx.Done():
			return
		case <-time.After(notifyPause):
		}
	}
}

func (n *notifier) send() {
	payload := n.sender + "\n" + strings.Join(n.take(), "\n")
	ctx, cancel := context.WithTimeout(n.ctx, notifyTimeout)
	defer cancel()
	// Nobody may depend on notifications, so errors are ignored.
	_, _ = n.store.pool.Exec(ctx, `SELECT pg_notify($1, $2)`, n.channel, payload)
}

// take returns the recorded prefixes. If there are too many, it returns their first
// components; if these are too many, the prefix of every key.
func (n *notifier) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	heads := slices.Sorted(maps.Keys(n.heads))
	if len(heads) > maxHeads {
		for i, h := range heads {
			first, _, _ := strings.Cut(h, ":")
			heads[i] = first
		}
		heads = slices.Compact(heads)
	}
	if n.all || len(heads) > maxHeads {
		heads = []string{""}
	}
	clear(n.heads)
	n.all = false
	return heads
}
