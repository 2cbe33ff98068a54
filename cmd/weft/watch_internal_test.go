package main

import (
	"bufio"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/sqlite"
)

// Whoever watches a workflow that continues as new between two looks gets the present life.
func TestWatchGoesOnWithTheNextLife(t *testing.T) {
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "a.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lives := &engine.Workflow[int, int]{Name: "lives", Func: func(run *engine.Run, n int) (int, error) {
		if err := run.Sleep(10 * time.Millisecond); err != nil || n == 2 {
			return n, err
		}
		return 0, engine.ContinueAsNew(run, n+1)
	}}
	eng, err := engine.New(engine.Config{Storage: s, Workflows: []engine.Definition{lives}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- eng.Run(ctx) }()
	defer func() { stop(); <-ran }()
	h, err := lives.Start(ctx, eng, "r", 0)
	if err != nil {
		t.Fatal(err)
	}
	first := ""
	for e, err := range eng.Follow(ctx, "r", "") {
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = e.ID // of a life that will be over
		}
	}
	if n, err := h.Result(ctx); err != nil || n != 2 {
		t.Fatal(n, err)
	}

	var out strings.Builder
	e := &env{Context: ctx, out: bufio.NewWriter(&out)}
	w := &watch{ID: "r"}
	last, err := w.printNew(e, &client{Engine: eng}, first)
	if err != nil {
		t.Fatal(err)
	}
	e.out.Flush()
	page, err := eng.Events(ctx, "r", weft.PageRequest{Ascending: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "\n"); got != len(page.Data) || last != page.Next {
		t.Errorf("printed were %d events up to %s, want the %d of the present life up to %s:\n%s", got, last, len(page.Data), page.Next, &out)
	}
	out.Reset()
	if again, err := w.printNew(e, &client{Engine: eng}, last); err != nil || again != last {
		t.Errorf("got %s, %v, want %s", again, err, last)
	}
	if e.out.Flush(); out.Len() > 0 {
		t.Errorf("printed again: %s", &out)
	}
}
