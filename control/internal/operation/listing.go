package operation

import (
	"bytes"
	"context"
	"encoding/base64"

	"github.com/weft-go/weft/storage"
)

// A Listing is a page of the entries of a range.
type Listing struct {
	storage.Range
	Paging
}

// maxWalk is how many entries are read for one page.
const maxWalk = 10_000

// Walk calls take for the entries of the page, until as many as wanted are taken, and then done with
// the cursor of the next page.
func (l Listing) Walk(ctx context.Context, s storage.Storage, take func(storage.Entry) (bool, error), done func(next string, more bool)) error {
	r := l.Range
	if !l.Ascending() {
		r.Reverse = true
	}
	if l.Cursor != "" {
		at, err := base64.RawURLEncoding.DecodeString(l.Cursor)
		if err != nil || bytes.Compare(at, l.Start) < 0 || l.End != nil && bytes.Compare(at, l.End) >= 0 {
			return BadCursor()
		}
		if r.Reverse {
			r.End = at
		} else {
			r.Start = append(bytes.Clone(at), 0)
		}
	}
	r.Limit = min(l.Most()+1, storage.DefaultLimit)
	taken, read, size := 0, 0, 0
	last := l.Cursor
	for e, err := range storage.All(ctx, s, r) {
		if err != nil {
			return err
		}
		if taken == l.Most() || read == maxWalk || size > MaxPageBytes {
			done(last, true)
			return nil
		}
		read++
		ok, err := take(e)
		if err != nil {
			return err
		}
		if ok {
			taken++
			size += len(e.Value)
		}
		last = base64.RawURLEncoding.EncodeToString(e.Key)
	}
	done(last, false)
	return nil
}
