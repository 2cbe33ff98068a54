package main

import (
	"path/filepath"
	"testing"
)

func TestStockAndBookAgree(t *testing.T) {
	if err := run(t.Context(), filepath.Join(t.TempDir(), "shop.db")); err != nil {
		t.Fatal(err)
	}
}
