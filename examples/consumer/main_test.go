package main

import (
	"path/filepath"
	"testing"
)

// FEN-29, FEN-43: whatever is delivered again, each order is one parcel, and the one without an address is put
// aside.
func TestEachOrderIsShippedOnce(t *testing.T) {
	if err := run(t.Context(), filepath.Join(t.TempDir(), "warehouse.db")); err != nil {
		t.Fatal(err)
	}
}
