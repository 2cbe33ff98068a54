package main

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

func TestEachEventCountsOnce(t *testing.T) {
	if err := run(t.Context(), filepath.Join(t.TempDir(), "shop.db")); err != nil {
		t.Fatal(err)
	}
}

// SIG-46: a provider retries only where that can help.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{engine.ErrInvalid, http.StatusBadRequest},
		{&signal.ConflictError{}, http.StatusConflict},
		{&signal.IndeterminateError{}, http.StatusConflict},
		{&engine.TerminalError{}, http.StatusConflict},
		{engine.ErrExists, http.StatusConflict},
		{engine.ErrClosed, http.StatusServiceUnavailable},
		{errors.New("disk full"), http.StatusServiceUnavailable},
	} {
		if got := status(fmt.Errorf("wrapped: %w", c.err)); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}
