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

// serial judges conditions in this process, under locks, before it writes. That
// is right for SingleOwner and for nothing else: everything goes through the one
// engine that has it. It does not claim ConditionalBatch, because it does not
// make the store better.
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
			return fmt.Errorf("engine: judge a condition: %w", err)
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

// lock takes the stripes of all of b's keys, in order, and returns their release.
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
