package inspect

import (
	"context"
	"iter"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// Signals is Engine.Signals.
func (e *Reader) Signals(ctx context.Context, id string) iter.Seq2[weft.SignalInfo, error] {
	return func(yield func(weft.SignalInfo, error) bool) {
		wf, err := e.Load(ctx, id)
		if err != nil {
			yield(weft.SignalInfo{}, err)
			return
		}
		for seq, last := uint64(0), false; !last; {
			page, end, err := acceptance.Inbox(ctx, e.Store, id, seq, storage.DefaultLimit)
			if err != nil {
				yield(weft.SignalInfo{}, err)
				return
			}
			for _, w := range page {
				if seq = w.Seq + 1; !yield(weft.SignalInfo{Name: w.Name, ID: w.ID, AcceptedAt: w.AcceptedAt, Bytes: w.Bytes}, nil) {
					return
				}
			}
			last = end
		}
		for w, err := range acceptance.Unaccounted(ctx, e.Store, id, keys.Signals(id)) {
			if err == nil {
				err = e.SameGeneration(ctx, wf) // a purge deletes one record after the other
			}
			if !yield(weft.SignalInfo{Name: w.Name, ID: w.ID, Bytes: w.Bytes, Indeterminate: err == nil}, err) || err != nil {
				return
			}
		}
	}
}
