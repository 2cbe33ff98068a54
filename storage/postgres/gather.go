package postgres

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/storage"
)

// A gatherer has reads share round trips. One that comes while few are under way
// goes by itself; the others wait until one of those is done, and then go
// together.
//
// A read that was sent with others and failed is sent again by itself: what is
// wrong with one of them is no answer to the rest.
type gatherer struct {
	store *Store

	mu      sync.Mutex
	going   int // round trips
	waiting []*reading
}

const (
	// roundTrips is how many may be under way before reads wait for each other.
	roundTrips = 2
	// maxGathered is how many reads go together, and smallPage what a page may
	// have that goes with others.
	maxGathered = 100
	smallPage   = 256
)

// A reading is one read, which waits for company.
type reading struct {
	key  []byte         // of a Get
	page *storage.Range // of a Scan

	served  bool
	value   []byte // nil: not there
	entries []storage.Entry
	over    chan struct{} // closed when it was sent, served or not
}

// small says that r does not hold up those that it goes with.
func (r *reading) small() bool {
	return r.page == nil || r.page.Limit > 0 && r.page.Limit <= smallPage
}

// enter has r served together with others, or lets it go by itself, after which
// its caller calls leave.
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

// keep copies what belongs to the caller, who may be gone before r is sent.
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

// leave says that a round trip is over, in whose place those that wait go.
func (g *gatherer) leave() {
	if group := g.next(); group != nil {
		g.store.running.Go(func() {
			for ; group != nil; group = g.next() {
				g.send(group)
			}
		})
	}
}

// next takes those who go next. If there are none, the round trip is given up.
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
