// Ingest is a search service that derives data from documents: chunks, and an index of them.
//
//	go run ./examples/ingest
//
// A document is ingested once for each content: its content hash is part of the key. An index is
// built once for each set of chunks, by whichever of 64 callers is first. The service swaps to an
// index only if it is built: Lookup returns what is sealed, and never builds. All of this still
// holds for a second process, which the program shows with a second Ledger on the same store.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/sqlite"
)

func main() {
	dir, err := os.MkdirTemp("", "weft-ingest-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := run(context.Background(), filepath.Join(dir, "search.db")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path string) error {
	for _, process := range []func(context.Context, storage.Storage) error{first, second} {
		store, err := sqlite.Open(path, nil)
		if err != nil {
			return err
		}
		if err := errors.Join(process(ctx, store), store.Close()); err != nil {
			return err
		}
	}
	return nil
}

var (
	cotton = Document{"cotton", "Cotton is a fibre. It is spun into yarn."}
	silk   = Document{"silk", "Silk is a fibre too."}
	silk2  = Document{"silk", "Silk is a fibre too. Spiders make some."}
)

// first ingests, builds and swaps.
func first(ctx context.Context, store storage.Storage) error {
	s, err := open(store)
	if err != nil {
		return err
	}
	defer s.ledger.Close()
	old, err := s.indexHash(ctx, cotton, silk, cotton) // cotton comes twice
	if err != nil {
		return err
	}
	if err := s.expect("ingested", &s.ingested, 2); err != nil {
		return err
	}
	if err := s.swap(ctx, "1", old); !errors.Is(err, errNotBuilt) {
		return fmt.Errorf("swapped to an index that is not built: %v", err)
	}
	if err := s.buildByMany(ctx, old, 64); err != nil {
		return err
	}
	if err := s.expect("built", &s.built, 1); err != nil {
		return err
	}
	return s.swap(ctx, "1", old)
}

// second is another process: a document has changed.
func second(ctx context.Context, store storage.Storage) error {
	s, err := open(store)
	if err != nil {
		return err
	}
	defer s.ledger.Close()
	old, err := s.indexHash(ctx, cotton, silk)
	if err != nil {
		return err
	}
	changed, err := s.indexHash(ctx, cotton, silk2)
	if err != nil {
		return err
	}
	if err := s.expect("ingested", &s.ingested, 1); err != nil {
		return err
	}
	for _, hash := range []string{old, changed} {
		if err := s.buildByMany(ctx, hash, 64); err != nil {
			return err
		}
	}
	if err := s.expect("built", &s.built, 1); err != nil {
		return err
	}
	// The third swap goes back to the first index: it is another generation, and so another effect.
	for generation, hash := range []string{old, changed, old, old} {
		if err := s.swap(ctx, fmt.Sprint(min(generation+1, 3)), hash); err != nil {
			return err
		}
	}
	return s.expect("swapped", &s.swapped, 2)
}
