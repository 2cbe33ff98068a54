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
