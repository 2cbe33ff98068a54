package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/sqlite"
)

// An engine whose store's files were deleted acknowledges nothing any more and ends,
// and what another has meanwhile made of the path is not touched.
func TestEngineEndsWithTheFilesOfItsStore(t *testing.T) {
	stores := map[string]func(path string) (storage.Storage, error){
		"sqlite shared": func(path string) (storage.Storage, error) {
			return stored(sqlite.Open(path, &sqlite.Options{Shared: true}))
		},
	}
	for name, open := range damaged {
		stores[name] = open
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) { endsWithItsFiles(t, open) })
	}
}

func endsWithItsFiles(t *testing.T, open func(path string) (storage.Storage, error)) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "store.db")
	opened := func() storage.Storage {
		t.Helper()
		s, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	word := &signal.Signal[int]{Name: "word"}
	began, why := make(chan struct{}, 2), make(chan error, 2)
	long := &activity.Activity[int, int]{Name: "long", Run: func(ctx context.Context, n int) (int, error) {
		began <- struct{}{}
		<-ctx.Done()
		why <- context.Cause(ctx)
		return 0, ctx.Err()
	}}
	listens := &engine.Workflow[int, int]{Name: "listens", Func: func(run *engine.Run, n int) (int, error) {
		if n == 0 {
			return long.Do(run, n)
		}
		for {
			if _, err := word.Receive(run); err != nil {
				return 0, err
			}
		}
	}}
	store := opened()
	p := boot(t, store, listens)
	client := made(t, store)
	for n := range 2 {
		if _, err := listens.Start(ctx, p, fmt.Sprint(n), n); err != nil {
			t.Fatal(err)
		}
	}
	<-began
	for range 5 {
		if _, err := word.Send(ctx, p, "1", 1, nil); err != nil {
			t.Fatal(err)
		}
	}

	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	next := boot(t, opened(), listens)
	for n := range 20 {
		for what, e := range map[string]*engine.Engine{"the engine": p.Engine, "a client": client} {
			if _, err := word.Send(ctx, e, "1", n, nil); !errors.Is(err, storage.ErrMoved) {
				t.Fatalf("send %d through %s: got %v, want ErrMoved", n, what, err)
			}
		}
	}
	if _, err := listens.Start(ctx, p, "late", 1); !errors.Is(err, storage.ErrMoved) {
		t.Errorf("start: got %v, want ErrMoved", err)
	}
	select {
	case err := <-p.done:
		if !errors.Is(err, storage.ErrMoved) {
			t.Errorf("Run: got %v, want ErrMoved", err)
		}
		p.done <- nil
	case <-ctx.Done():
		t.Fatal("Run did not return")
	}
	if err := <-why; !errors.Is(err, activity.ErrStopped) {
		t.Errorf("the activity that was under way: got the cause %v, want ErrStopped", err)
	}
	store.Close()
	if _, err := listens.Start(ctx, next, "new", 1); err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		if _, err := word.Send(ctx, next, "new", n, nil); err != nil {
			t.Errorf("send %d to the other: %v", n, err)
		}
	}
	if _, err := next.Describe(ctx, "1"); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("a workflow of the deleted store: got %v, want ErrNotFound", err)
	}
}

// A breakable store fails for good once it is told to.
type breakable struct {
	storage.Storage
	failed atomic.Bool
}

func (s *breakable) Unwrap() storage.Storage { return s.Storage }

func (s *breakable) failure() error {
	if s.failed.Load() {
		return fmt.Errorf("%w: %w", storage.ErrFailed, syscall.EIO)
	}
	return nil
}

func (s *breakable) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := s.failure(); err != nil {
		return nil, err
	}
	return s.Storage.Get(ctx, key)
}

func (s *breakable) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	if err := s.failure(); err != nil {
		return nil, err
	}
	return s.Storage.Scan(ctx, r)
}

func (s *breakable) Commit(ctx context.Context, b storage.Batch) error {
	if err := s.failure(); err != nil {
		return err
	}
	return s.Storage.Commit(ctx, b)
}

// An engine whose store has failed ends, and its calls do not wait.
func TestEngineEndsWithItsStore(t *testing.T) {
	for name, inner := range map[string]storage.Storage{"exclusive": new(memory.Store), "shared": sharing{new(memory.Store)}} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				word := &signal.Signal[int]{Name: "word"}
				why := make(chan error, 1)
				long := &activity.Activity[int, int]{Name: "long", Run: func(ctx context.Context, n int) (int, error) {
					<-ctx.Done()
					why <- context.Cause(ctx)
					return 0, ctx.Err()
				}}
				wf := &engine.Workflow[int, int]{Name: "w", Func: func(run *engine.Run, n int) (int, error) { return long.Do(run, n) }}
				s := &breakable{Storage: inner}
				p := boot(t, s, wf)
				start(t, wf, p, "1", 1)
				time.Sleep(time.Second)
				s.failed.Store(true)
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := word.Send(ctx, p, "1", 1, nil); !errors.Is(err, storage.ErrFailed) {
					t.Errorf("send: got %v, want ErrFailed", err)
				}
				if _, err := wf.Start(ctx, p, "2", 1); !errors.Is(err, storage.ErrFailed) {
					t.Errorf("start: got %v, want ErrFailed", err)
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("they took %v, want none", took)
				}
				time.Sleep(10 * time.Second)
				select {
				case err := <-p.done:
					if !errors.Is(err, storage.ErrFailed) || !errors.Is(err, syscall.EIO) {
						t.Errorf("Run: got %v, want ErrFailed and its cause", err)
					}
					p.done <- nil
				default:
					t.Fatal("Run has not returned")
				}
				if err := <-why; !errors.Is(err, activity.ErrStopped) {
					t.Errorf("the activity that was under way: got the cause %v, want ErrStopped", err)
				}
			})
		})
	}
}
