package worldstream

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A slow context is asked late whether it has ended.
type slow struct{ context.Context }

func (s slow) Done() <-chan struct{} {
	time.Sleep(10 * time.Millisecond)
	return s.Context.Done()
}

// Nothing is read after Close, also if the store answers before the reader looks whether it was closed.
func TestReadAfterClose(t *testing.T) {
	s, err := Open(new(memory.Store), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(t.Context(), Write{RunID: "wrun_1", Name: "words", Chunks: [][]byte{[]byte("x")}}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s.life = slow{s.life}
	for _, run := range []string{"wrun_1", ""} { // "" is the newest with such a stream
		read := 0
		for range 10 {
			if _, err := s.Read(t.Context(), run, "words", 0, func(uint64, []Chunk) error { read++; return nil }); !errors.Is(err, storage.ErrClosed) {
				t.Fatalf("run %q: %v, want ErrClosed", run, err)
			}
		}
		if read > 0 {
			t.Errorf("run %q: give was called %d times", run, read)
		}
	}
}

// A stream that was closed may be removed, with its run or because that did not come. Then no call is answered from memory.
func TestWriteAfterAClosedStreamWasRemoved(t *testing.T) {
	store := new(memory.Store)
	s, err := Open(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 3 {
		got, err := s.Write(t.Context(), Write{RunID: "wrun_1", Name: "words", Chunks: [][]byte{[]byte("x")}})
		if err != nil || got.Index != 0 || got.Closed {
			t.Fatalf("a write to a stream that is not there: %+v, %v", got, err)
		}
		if err := s.CloseStream(t.Context(), "wrun_1", "words"); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Write(t.Context(), Write{RunID: "wrun_1", Name: "words", Chunks: [][]byte{[]byte("x")}}); err != nil || !got.Closed {
			t.Fatalf("a write to a stream that is closed: %+v, %v", got, err)
		}
		var remove storage.Batch
		for e, err := range storage.All(t.Context(), store, storage.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			remove.Ops = append(remove.Ops, storage.Delete(e.Key))
		}
		if err := store.Commit(t.Context(), remove); err != nil { // as another process does
			t.Fatal(err)
		}
	}
}
