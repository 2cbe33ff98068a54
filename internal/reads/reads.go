// Package reads reads a store with few calls: several keys together, and one key for many callers at once.
package reads

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/weft-go/weft/storage"
)

const (
	few    = 4   // keys that are read one by one; more are read as a page
	atOnce = 100 // single reads that are made at once: a PostgreSQL store sends so many together
)

// Get returns the values of keys, and nil for each key that is not there. Keys that are close to each other in the store are read
// as one page. Those that the page does not reach are read one by one.
func Get(ctx context.Context, s storage.Storage, keys [][]byte) ([][]byte, error) {
	values := make([][]byte, len(keys))
	var read []byte // the last key up to which all were read
	if len(keys) > few {
		first, last := slices.MinFunc(keys, bytes.Compare), slices.MaxFunc(keys, bytes.Compare)
		r := storage.Range{Start: first, End: append(slices.Clone(last), 0), Limit: 2 * len(keys)}
		page, err := s.Scan(ctx, r)
		if err != nil {
			return nil, err
		}
		if read = last; len(page) == r.Limit {
			read = page[len(page)-1].Key
		}
		found := make(map[string][]byte, len(page))
		for _, e := range page {
			found[string(e.Key)] = e.Value
		}
		for i, k := range keys {
			values[i] = found[string(k)]
		}
	}
	errs := make([]error, len(keys))
	var calls sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for i, k := range keys {
		if bytes.Compare(k, read) <= 0 {
			continue
		}
		free <- struct{}{}
		calls.Go(func() {
			defer func() { <-free }()
			value, err := s.Get(ctx, k)
			if errors.Is(err, storage.ErrNotFound) {
				value, err = nil, nil
			}
			values[i], errs[i] = value, err
		})
	}
	calls.Wait()
	return values, errors.Join(errs...)
}
