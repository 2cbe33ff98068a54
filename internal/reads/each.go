package reads

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/weft-go/weft/storage"
)

// mostInARow is how many entries in a row may fail: either one record cannot be read, or the store cannot be reached.
const mostInARow = 3

// Failures are those of entries that are dealt with one after the other. The zero value has none.
type Failures struct {
	First  error // with the key of its entry
	inARow int
}

// End notes err, which may be nil, of the next entry. It reports whether to stop: some in a row have failed, or ctx has ended. Otherwise
// an entry that fails does not keep the others from their turn.
func (f *Failures) End(ctx context.Context, key []byte, err error) bool {
	if err == nil {
		f.inARow = 0
		return false
	}
	if f.First == nil {
		f.First = fmt.Errorf("entry %.300q: %w", key, err)
	}
	f.inARow++
	return f.inARow == mostInARow || ctx.Err() != nil
}

// Places are those at which ranges are gone on with. The zero Places is ready for use, also by several goroutines.
type Places struct {
	behind sync.Map // from the start of a range to the place
}

// Each calls f with each entry of r until Failures.End. It returns the first error. If several in a row have failed, the next call with
// the same start begins behind them, and the one after that at the start again.
func (p *Places) Each(ctx context.Context, s storage.Storage, r storage.Range, f func(storage.Entry) error) error {
	var failures Failures
	for e, err := range storage.All(ctx, s, p.GoOn(r)) {
		if err != nil {
			return err
		}
		if failures.End(ctx, e.Key, f(e)) {
			p.Leave(r, e.Key)
			break
		}
	}
	return failures.First
}

// GoOn returns what of r comes behind the place at which Leave has left it, once: then all of r.
func (p *Places) GoOn(r storage.Range) storage.Range {
	if place, ok := p.behind.LoadAndDelete(string(r.Start)); ok {
		r.Start = place.([]byte)
	}
	return r
}

// Leave notes that r, or another range with the same start, is gone on with behind key.
func (p *Places) Leave(r storage.Range, key []byte) {
	p.behind.Store(string(r.Start), append(bytes.Clone(key), 0))
}

// First returns what read finds in the first key of r that it can read, or false if there is none. It calls unreadable with the keys
// before that.
func First[T any](ctx context.Context, s storage.Storage, r storage.Range, read func(key []byte) (T, error), unreadable func(key []byte, err error)) (first T, ok bool, _ error) {
	for r.Limit = 1; ; r.Limit = storage.DefaultLimit {
		page, err := s.Scan(ctx, r)
		if err != nil || len(page) == 0 {
			return first, false, err
		}
		for _, e := range page {
			if bytes.Compare(e.Key, r.Start) < 0 { // who goes on behind it would never end
				return first, false, fmt.Errorf("%w: record %q is out of order", storage.ErrCorrupt, e.Key)
			}
			if first, err = read(e.Key); err == nil {
				return first, true, nil
			}
			unreadable(e.Key, err)
		}
		if len(page) < r.Limit {
			return first, false, nil
		}
		r.Start = append(page[len(page)-1].Key, 0)
	}
}
