package control

import (
	"context"
	"errors"

	"github.com/weft-go/weft/storage"
)

// mutate makes one change: apply stages it on tx, with conditions on what it has decided by
// (Engine.In(tx), tx.Commit), and the batch also has the audit row and, if the call has an idempotency
// key, the answer. Nothing of it is in the store unless all is.
//
// apply is called again from fresh reads if somebody else has changed what it read, for 10 s. So it
// has no effects beside those on tx, and it sets call.note anew. An error of apply is returned
// unchanged, and nothing is written.
//
// If the answer to this key was given before, apply is not called, and mutate returns that answer.
func (c *call) mutate(ctx context.Context, apply func(ctx context.Context, tx storage.Tx) (answer, error)) (answer, error) {
	return answer{}, errors.ErrUnsupported
}
