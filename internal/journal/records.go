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
// they are small. If the range has a Limit, it never reads more at once.
func Records(ctx context.Context, s storage.Storage, r storage.Range) iter.Seq2[storage.Entry, error] {
	most := recordsAtOnce
	if r.Limit > 0 {
		most = min(r.Limit, most)
	}
	return func(yield func(storage.Entry, error) bool) {
		r := r // for each loop
		r.Limit = min(keys.PayloadPage, most)
		for {
			page, err := s.Scan(ctx, r)
			if err != nil {
				yield(storage.Entry{}, err)
				return
			}
			whole := len(page) < r.Limit
			if !whole {
				last := page[len(page)-1].Key
				if r.Reverse && r.End != nil && bytes.Compare(last, r.End) >= 0 || !r.Reverse && bytes.Compare(last, r.Start) < 0 {
					yield(storage.Entry{}, fmt.Errorf("%w: %q is out of order", storage.ErrCorrupt, last)) // the loop would never end
					return
				}
				if r.Reverse {
					r.End = bytes.Clone(last)
				} else {
					r.Start = behind(page)
				}
				if r.Limit = min(2*r.Limit, most); !small(page) {
					r.Limit = min(keys.PayloadPage, most)
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
