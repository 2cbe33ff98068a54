package journal

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// recordsAtOnce is how many records that may be large are read at once if those before them are small. Large ones may be
// behind small ones.
const recordsAtOnce = 4 * keys.PayloadPage

// Records yields the entries of a range, which may be large. So it reads a few at once, and twice as many each time as long as
// they are small.
func Records(ctx context.Context, s storage.Storage, r storage.Range) iter.Seq2[storage.Entry, error] {
	return func(yield func(storage.Entry, error) bool) {
		r := r // for each loop
		r.Limit = keys.PayloadPage
		for {
			page, err := s.Scan(ctx, r)
			if err != nil {
				yield(storage.Entry{}, err)
				return
			}
			whole := len(page) < r.Limit
			if !whole {
				next := behind(page)
				if bytes.Compare(next, r.Start) <= 0 {
					yield(storage.Entry{}, fmt.Errorf("%w: %q is out of order", storage.ErrCorrupt, next)) // the loop would never end
					return
				}
				r.Start = next
				if r.Limit = min(2*r.Limit, recordsAtOnce); !small(page) {
					r.Limit = keys.PayloadPage
				}
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
			}
			if whole {
				return
			}
		}
	}
}

// small reports whether a page has so few bytes that several such pages may be in memory for each run.
func small(page []storage.Entry) bool {
	n := 0
	for _, e := range page {
		n += len(e.Value)
	}
	return n <= 1<<20
}

// behind returns the start of the range behind a page.
func behind(page []storage.Entry) []byte { return append(bytes.Clone(page[len(page)-1].Key), 0) }
