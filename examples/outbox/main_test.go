package main

import (
	"path/filepath"
	"testing"

	"github.com/weft-go/weft/internal/torture"
)

func TestStockAndBookAgree(t *testing.T) {
	torture.Slow(t)
	if err := run(t.Context(), filepath.Join(t.TempDir(), "shop.db")); err != nil {
		t.Fatal(err)
	}
}
