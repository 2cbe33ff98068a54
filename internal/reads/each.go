package reads

import (
	"context"
	"fmt"

	"github.com/weft-go/weft/storage"
)

// mostInARow is how many entries in a row may fail, and Each goes on: one record cannot be read, or the store cannot be reached.
const mostInARow = 3

// Each calls f with each entry of r. An entry for which f fails does not keep the others from their turn, unless some in a row
// fail, or ctx has ended. Each returns the first error, with the key of its entry.
func Each(ctx context.Context, s storage.Storage, r storage.Range, f func(storage.Entry) error) error {
	var first error
	failed := 0 // in a row
	for e, err := range storage.All(ctx, s, r) {
		if err != nil {
			return err
		}
		if err := f(e); err == nil {
			failed = 0
			continue
		} else if first == nil {
			first = fmt.Errorf("entry %.300q: %w", e.Key, err)
		}
		if failed++; failed == mostInARow || ctx.Err() != nil {
			break
		}
	}
	return first
}
