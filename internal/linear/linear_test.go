package linear

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A flawed store violates its contract in every tenth commit or read.
type flawed struct {
	storage.Storage
	commits, gets atomic.Int64
	commit        func(ctx context.Context, s storage.Storage, b storage.Batch) error
	get           func(ctx context.Context, s storage.Storage, key []byte) ([]byte, error)
}

func (f *flawed) Commit(ctx context.Context, b storage.Batch) error {
	if f.commit != nil && f.commits.Add(1)%10 == 0 {
		return f.commit(ctx, f.Storage, b)
	}
	return f.Storage.Commit(ctx, b)
}

func (f *flawed) Get(ctx context.Context, key []byte) ([]byte, error) {
	if f.get != nil && f.gets.Add(1)%10 == 0 {
		return f.get(ctx, f.Storage, key)
	}
	return f.Storage.Get(ctx, key)
}

// Each of these flaws is found within a few histories.
func TestFlawedStoresAreFound(t *testing.T) {
	var late sync.WaitGroup
	defer late.Wait()
	var mu sync.Mutex
	old := map[string][]byte{}
	for name, f := range map[string]*flawed{
		"a commit is acknowledged and not done": {commit: func(context.Context, storage.Storage, storage.Batch) error { return nil }},
		"a commit is done and called a conflict": {commit: func(ctx context.Context, s storage.Storage, b storage.Batch) error {
			return errors.Join(s.Commit(ctx, b), storage.ErrConflict)
		}},
		"a commit with conditions that do not hold is done": {commit: func(ctx context.Context, s storage.Storage, b storage.Batch) error {
			b.If = nil
			return s.Commit(ctx, b)
		}},
		"half of a commit is done": {commit: func(ctx context.Context, s storage.Storage, b storage.Batch) error {
			half := b
			half.Ops = b.Ops[:len(b.Ops)/2]
			if half.Check(storage.Size{}) != nil {
				half = b
			}
			return s.Commit(ctx, half)
		}},
		"a commit is done twice": {commit: func(ctx context.Context, s storage.Storage, b storage.Batch) error {
			err := s.Commit(ctx, b)
			if err == nil {
				late.Go(func() { s.Commit(ctx, storage.Batch{Ops: b.Ops}) })
			}
			return err
		}},
		"a commit is done after it was acknowledged": {commit: func(ctx context.Context, s storage.Storage, b storage.Batch) error {
			late.Go(func() { s.Commit(ctx, b) })
			return nil
		}},
		"a read is of the past": {get: func(ctx context.Context, s storage.Storage, key []byte) ([]byte, error) {
			v, err := s.Get(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if was, ok := old[string(key)]; ok {
				return was, nil
			}
			if err == nil {
				old[string(key)] = v
			}
			return v, err
		}},
	} {
		f.Storage = new(memory.Store)
		found := false
		for n := uint64(0); n < 200 && !found; n++ {
			h := newHistory(f, 1, n)
			h.ranges = true
			h.record()
			found = h.judge() != nil
		}
		if !found {
			t.Errorf("%s: not found in 200 histories", name)
		}
	}
}

// A call of unknown outcome may take effect late, once, or never. Its conditions hold at that
// time.
func TestUnknownOutcomes(t *testing.T) {
	put := func(v uint32, conditions ...condition) input {
		return input{kind: committing, batch: batch{conditions, []op{{storage.PutOp, 0, v}}}}
	}
	get := func(v uint32) (input, output) {
		return input{kind: getting}, output{seen: state{v}}
	}
	type call struct {
		in          input
		out         output
		began, over int64
	}
	read := func(v uint32, at int64) call {
		in, out := get(v)
		return call{in, out, at, at + 1}
	}
	lost := call{put(7), output{answer: unknown}, 1, never}
	fenced := call{put(7, condition{storage.IsAbsent, 0, 0}), output{answer: unknown}, 1, never}
	for _, c := range []struct {
		name  string
		calls []call
		legal bool
	}{
		{"never", []call{lost, read(0, 10), read(0, 20)}, true},
		{"late", []call{lost, read(0, 10), read(7, 20)}, true},
		{"undone", []call{lost, read(7, 10), read(0, 20)}, false},
		{"twice", []call{lost, read(7, 10), {put(8), output{}, 20, 21}, read(8, 30), read(7, 40)}, false},
		{"before it was called", []call{{lost.in, lost.out, 30, never}, read(7, 10)}, false},
		{"over its own condition", []call{fenced, {put(8), output{}, 10, 11}, read(7, 20)}, false},
	} {
		var entries []porcupine.Operation
		for i, x := range c.calls {
			entries = append(entries, porcupine.Operation{ClientId: i, Input: x.in, Call: x.began, Output: x.out, Return: x.over})
		}
		if got := porcupine.CheckOperations(model, entries); got != c.legal {
			t.Errorf("%s: got %v, want %v", c.name, got, c.legal)
		}
	}
}
