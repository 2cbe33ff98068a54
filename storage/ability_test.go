package storage_test

import (
	"testing"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// A layer wraps a store and adds nothing.
type layer struct{ storage.Storage }

func (l layer) Unwrap() storage.Storage { return l.Storage }

func TestAsFindsTheOutermost(t *testing.T) {
	inner := new(memory.Store)
	if got, ok := storage.As[storage.Exclusive](inner); !ok || got != storage.Exclusive(inner) {
		t.Errorf("not wrapped: got %v, %v, want the store", got, ok)
	}
	if got, ok := storage.As[storage.Exclusive](layer{layer{inner}}); !ok || got != storage.Exclusive(inner) {
		t.Errorf("wrapped twice: got %v, %v, want the innermost store", got, ok)
	}
	f := storagetest.NewFaulty(inner, nil)
	if got, ok := storage.As[storage.Exclusive](layer{f}); !ok || got != storage.Exclusive(f) {
		t.Errorf("wrapped in another that can: got %v, %v, want that one", got, ok)
	}
}

func TestAsFindsNothing(t *testing.T) {
	for what, s := range map[string]storage.Storage{
		"a store":              new(memory.Store),
		"a layer":              layer{new(memory.Store)},
		"what hides its inner": struct{ storage.Storage }{new(memory.Store)},
		"a layer of nothing":   layer{},
		"nothing":              nil,
	} {
		if got, ok := storage.As[storage.Watcher](s); ok || got != nil {
			t.Errorf("%s: got %v, %v, want no Watcher", what, got, ok)
		}
	}
}

func TestAdapterNamesTheInnermost(t *testing.T) {
	if got := storage.Adapter(layer{storagetest.NewFaulty(new(memory.Store), nil)}); got != "*memory.Store" {
		t.Errorf("got %q, want *memory.Store", got)
	}
}
