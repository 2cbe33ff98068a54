package operation

import (
	"bytes"
	"context"
	"encoding/base64"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/storage"
)

// A Listing is a page of the entries of a range.
type Listing struct {
	storage.Range
	Paging
	Whole *storage.Range // where a cursor may be; nil: in Range. A page has what is of Range alone.
}

// maxWalk is how many entries are read for one page.
const maxWalk = 10_000

// PageOf returns the page of l, of what item makes of the entries. item returns false for an entry that is not of the list.
func PageOf[T any](ctx context.Context, s storage.Storage, l Listing, item func(storage.Entry) (T, bool, error)) (weft.Page[T], error) {
	page, r := weft.Page[T]{Next: l.Cursor}, l.Range
	if !l.Ascending() {
		r.Reverse = true
	}
	if l.Cursor != "" {
		at, err := base64.RawURLEncoding.DecodeString(l.Cursor)
		whole := l.Range
		if l.Whole != nil {
			whole = *l.Whole
		}
		if err != nil || bytes.Compare(at, whole.Start) < 0 || whole.End != nil && bytes.Compare(at, whole.End) >= 0 {
			return page, BadCursor()
		}
		if next := append(bytes.Clone(at), 0); !r.Reverse && bytes.Compare(next, r.Start) > 0 {
			r.Start = next
		}
		if r.Reverse && (r.End == nil || bytes.Compare(at, r.End) < 0) {
			r.End = at
		}
		if r.End != nil && bytes.Compare(r.Start, r.End) >= 0 {
			return page, nil
		}
	}
	r.Limit = min(l.Most()+1, storage.DefaultLimit)
	read, size := 0, 0
	for e, err := range storage.All(ctx, s, r) {
		if err != nil {
			return page, err
		}
		if len(page.Data) == l.Most() || read == maxWalk || size > MaxPageBytes {
			page.HasMore = true
			return page, nil
		}
		read++
		v, ok, err := item(e)
		if err != nil {
			return page, err
		}
		if ok {
			page.Data = append(page.Data, v)
			size += len(e.Value)
		}
		page.Next = base64.RawURLEncoding.EncodeToString(e.Key)
	}
	return page, nil
}
