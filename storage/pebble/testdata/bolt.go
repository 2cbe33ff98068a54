// Package bolt takes the place of storage/bolt in tests of storage/pebble: its stores are those of
// pebble.
package bolt

import "github.com/weft-go/weft/storage/pebble"

// Options are those of storage/bolt. There are no buckets.
type Options struct {
	Bucket   string
	ReadOnly bool
}

type Store = pebble.Store

func Open(path string, o *Options) (*Store, error) {
	if o == nil {
		return pebble.Open(path, nil)
	}
	return pebble.Open(path, &pebble.Options{ReadOnly: o.ReadOnly})
}
