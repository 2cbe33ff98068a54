package storagetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft/storage"
)

// NoConditions returns s without ConditionalBatch: a batch with conditions is
// refused with errors.ErrUnsupported. All else is passed to s.
func NoConditions(s storage.Storage) storage.Wrapper { return noConditions{s} }

type noConditions struct{ storage.Storage }

func (n noConditions) Unwrap() storage.Storage { return n.Storage }

func (n noConditions) Capabilities() storage.Capabilities {
	c := n.Storage.Capabilities()
	c.ConditionalBatch = false
	return c
}

func (n noConditions) Commit(ctx context.Context, b storage.Batch) error {
	if len(b.If) > 0 {
		return fmt.Errorf("storagetest: commit: conditions: %w", errors.ErrUnsupported)
	}
	return n.Storage.Commit(ctx, b)
}
