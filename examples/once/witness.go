package main

import (
	"bytes"
	"context"
	"sync"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A witness notes which claims and seals the store has confirmed to this process.
type witness struct {
	storage.Storage
	mu    sync.Mutex // guards notes
	notes []note
}

// A note says that a record was written.
type note struct {
	Hash  string
	State string
	Epoch uint64 // the fencing token of the claim
}

func (w *witness) Unwrap() storage.Storage { return w.Storage }

func (w *witness) Commit(ctx context.Context, b storage.Batch) error {
	err := w.Storage.Commit(ctx, b)
	if err != nil {
		return err
	}
	for _, op := range b.Ops {
		if op.Kind == storage.PutOp && bytes.HasPrefix(op.Key, []byte("idem:")) {
			if n, ok := noteOf(op); ok {
				w.mu.Lock()
				w.notes = append(w.notes, n)
				w.mu.Unlock()
			}
		}
	}
	return nil
}

// take returns what was noted since it was last called.
func (w *witness) take() []note {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.notes
	w.notes = nil
	return n
}

func noteOf(op storage.Op) (note, bool) {
	var e struct {
		State string `cbor:"7,keyasint"`
		Epoch uint64 `cbor:"18,keyasint"`
	}
	_, _, _, hash, err := keys.ClaimNames(op.Key)
	if err == nil {
		_, err = record.Open(op.Key, op.Value, 1, &e)
	}
	return note{hash, e.State, e.Epoch}, err == nil
}
