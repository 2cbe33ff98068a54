package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/storage"
)

// serial checks conditions in this process, under locks, before it writes. That is correct
// for OwnershipSingleOwner only, where all commits go through one engine. It does not declare
// ConditionalBatch, because other processes could still write between check and commit.
type serial struct {
	storage.Storage
	seed    maphash.Seed
	stripes [64]lock.Mutex
}

func newSerial(s storage.Storage) *serial {
	z := &serial{Storage: s, seed: maphash.MakeSeed()}
	for i := range z.stripes {
		z.stripes[i].SetRank(lock.Stripe)
	}
	return z
}

func (s *serial) Unwrap() storage.Storage { return s.Storage }

func (s *serial) Capabilities() storage.Capabilities {
	c := s.Storage.Capabilities()
	c.ConditionalBatch = false
	return c
}

func (s *serial) Commit(ctx context.Context, b storage.Batch) error {
	if err := b.Check(s.Capabilities().MaxBatch); err != nil {
		return err
	}
	defer s.lock(b)()
	for _, c := range b.If {
		v, err := s.Get(ctx, c.Key)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return fmt.Errorf("engine: check a condition: %w", err)
		}
		there := err == nil
		switch {
		case c.Kind == storage.IsAbsent && there,
			c.Kind == storage.IsPresent && !there,
			c.Kind == storage.IsEqual && (!there || !bytes.Equal(v, c.Value)):
			return storage.ErrConflict
		}
	}
	b.If = nil
	return s.Storage.Commit(ctx, b)
}

// lock locks the stripes of all of b's keys, in order. The returned function unlocks them.
func (s *serial) lock(b storage.Batch) (unlock func()) {
	var held []int
	for _, c := range b.If {
		held = append(held, int(maphash.Bytes(s.seed, c.Key)%uint64(len(s.stripes))))
	}
	for _, o := range b.Ops {
		held = append(held, int(maphash.Bytes(s.seed, o.Key)%uint64(len(s.stripes))))
	}
	slices.Sort(held)
	held = slices.Compact(held)
	for _, i := range held {
		s.stripes[i].Lock()
	}
	return func() {
		for _, i := range held {
			s.stripes[i].Unlock()
		}
	}
}
