package postgres

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/storage"
)

// A gatherer makes reads share round trips. A read that arrives while fewer than
// roundTrips are in progress is sent by itself. Others wait until one of those is done,
// and are then sent together.
//
// A read that failed together with others is sent again by itself, because another read
// may have caused the failure.
type gatherer struct {
	store *Store

	mu      sync.Mutex
	going   int // number of round trips in progress
	waiting []*reading
}

const (
	// roundTrips is the maximum number of round trips in progress. Further reads wait.
	roundTrips = 2
	// maxGathered is the maximum number of reads in a round trip, and smallPage the
	// maximum limit of a page that shares one.
	maxGathered = 100
	smallPage   = 256
)

// A reading is one read that may share a round trip.
type reading struct {
	key  []byte         // of a Get
	page *storage.Range // of a Scan

	served  bool
	value   []byte // nil: not found
	entries []storage.Entry
	over    chan struct{} // closed after the round trip, served or not
}

// small reports whether r is small enough not to delay the reads that it is sent with.
func (r *reading) small() bool {
	return r.page == nil || r.page.Limit > 0 && r.page.Limit <= smallPage
}

// enter waits until r was sent together with others, or reports that the caller must send
// it alone. Then the caller must call leave afterwards.
func (g *gatherer) enter(ctx context.Context, r *reading) (alone bool, err error) {
	g.mu.Lock()
	if g.going < roundTrips {
		g.going++
		g.mu.Unlock()
		return true, nil
	}
	r.keep()
	r.over = make(chan struct{})
	g.waiting = append(g.waiting, r)
	g.mu.Unlock()
	select {
	case <-r.over:
		return false, nil
	case <-ctx.Done():
		g.withdraw(r)
		return false, ctx.Err()
	}
}

// keep copies the caller's bytes, as the caller may return before r is sent.
func (r *reading) keep() {
	r.key = bytes.Clone(r.key)
	if r.page != nil {
		page := *r.page
		page.Start, page.End = bytes.Clone(page.Start), bytes.Clone(page.End)
		r.page = &page
	}
}

func (g *gatherer) withdraw(r *reading) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, r); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
}

// leave ends a round trip. If reads are waiting, they are sent in its place.
func (g *gatherer) leave() {
	if group := g.next(); group != nil {
		g.store.running.Go(func() {
			for ; group != nil; group = g.next() {
				g.send(group)
			}
		})
	}
}

// next returns the next reads to send. If there are none, the round trip ends.
func (g *gatherer) next() []*reading {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), maxGathered)
	if n == 0 {
		g.going--
		return nil
	}
	group := slices.Clone(g.waiting[:n])
	g.waiting = slices.Delete(g.waiting, 0, n)
	return group
}

// send makes one round trip: one statement for all keys, and one for each page.
func (g *gatherer) send(group []*reading) {
	defer func() {
		for _, r := range group {
			close(r.over)
		}
	}()
	s := g.store
	ctx, cancel := context.WithTimeout(context.Background(), roundTripTimeout)
	defer cancel()
	var b pgx.Batch
	var keys [][]byte
	byKey := map[string][]*reading{}
	for _, r := range group {
		if r.page == nil {
			keys = append(keys, r.key)
			byKey[string(r.key)] = append(byKey[string(r.key)], r)
		}
	}
	if len(keys) > 0 {
		b.Queue(s.sql.gets, keys).Query(func(rows pgx.Rows) error {
			var key, value []byte
			_, err := pgx.ForEachRow(rows, []any{&key, &value}, func() error {
				for _, r := range byKey[string(key)] {
					r.value = bytes.Clone(value)
				}
				return nil
			})
			return err
		})
	}
	for _, r := range group {
		if r.page != nil {
			sql, args := s.sql.page(*r.page)
			b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
				r.entries, err = collect(rows)
				return err
			})
		}
	}
	if err := s.pool.SendBatch(ctx, &b).Close(); err != nil {
		return
	}
	for _, r := range group {
		r.served = true
	}
}
