package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// A Document is what the service searches.
type Document struct{ ID, Text string }

var errNotBuilt = errors.New("this index is not built")

// search is the service. Its counters say what it has really done.
type search struct {
	ledger                   *idempotency.Ledger
	ingested, built, swapped atomic.Int64

	ingest *idempotency.Effect[Document, []string] // the ids of its chunks
	build  *idempotency.Effect[string, int]        // the number of entries of an index
	serve  *idempotency.Effect[string, string]     // the hash of the index that is served
}

func open(store storage.Storage) (*search, error) {
	ledger, err := idempotency.New(idempotency.Config{Storage: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	s := &search{ledger: ledger}
	s.ingest = &idempotency.Effect[Document, []string]{
		Name: "ingest", OnAbandoned: idempotency.TakeOver, // chunks that are written again are the same
		Run: func(ctx context.Context, d Document) (ids []string, err error) {
			s.ingested.Add(1)
			for n := range strings.Split(d.Text, ". ") {
				ids = append(ids, fmt.Sprintf("%s-%d", idempotency.AttemptFrom(ctx).EffectID, n+1))
			}
			return ids, nil
		},
	}
	s.build = &idempotency.Effect[string, int]{
		Name: "build", OnAbandoned: idempotency.TakeOver,
		Run: func(_ context.Context, hash string) (int, error) {
			s.built.Add(1)
			return len(hash), nil
		},
	}
	s.serve = &idempotency.Effect[string, string]{
		Name: "swap", OnAbandoned: idempotency.TakeOver,
		Run: func(_ context.Context, hash string) (string, error) {
			s.swapped.Add(1)
			return hash, nil
		},
	}
	return s, nil
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// indexHash ingests documents, and returns the hash of the index of all their chunks.
func (s *search) indexHash(ctx context.Context, docs ...Document) (string, error) {
	seen := map[string]bool{}
	var all []string
	for _, d := range docs {
		k := idempotency.Key{SourceType: "doc", SourceID: d.ID, Revision: hash(d.Text)}
		r, err := s.ingest.Do(ctx, s.ledger, k, d)
		if err != nil {
			return "", err
		}
		fmt.Printf("%s: %d chunks (%s)\n", d.ID, len(r.Result), r.Decision)
		if !seen[d.ID] {
			all = append(all, r.Result...)
		}
		seen[d.ID] = true
	}
	return hash(strings.Join(all, " ")), nil
}

func indexKey(hash string) idempotency.Key {
	return idempotency.Key{SourceType: "index", IndexHash: hash}
}

// buildByMany has many callers ask for one index at once. Each gets it.
func (s *search) buildByMany(ctx context.Context, hash string, callers int) error {
	errs := make([]error, callers)
	var all sync.WaitGroup
	for n := range errs {
		all.Go(func() { _, errs[n] = s.build.Do(ctx, s.ledger, indexKey(hash), hash) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// swap serves the index from now on, if it is built. The generation says which swap this is: without it,
// the service could not go back to an index that it served before.
func (s *search) swap(ctx context.Context, generation, hash string) error {
	built, err := s.build.Lookup(ctx, s.ledger, indexKey(hash))
	if errors.Is(err, idempotency.ErrNotSealed) {
		return errNotBuilt
	} else if err != nil {
		return err
	}
	k := idempotency.Key{SourceType: "alias", SourceID: "search", Revision: generation, IndexHash: hash}
	r, err := s.serve.Do(ctx, s.ledger, k, hash)
	if err == nil {
		fmt.Printf("generation %s serves the index %.8s, built as %s (%s)\n", generation, hash, built.EffectID, r.Decision)
	}
	return err
}

// expect compares a counter with what it must be.
func (s *search) expect(what string, counter *atomic.Int64, want int64) error {
	if got := counter.Load(); got != want {
		return fmt.Errorf("%s %d times, want %d", what, got, want)
	}
	fmt.Printf("%s %d times\n", what, want)
	return nil
}
