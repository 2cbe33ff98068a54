package engine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// realStores open a new store of each kind. Adapters in modules of their own add theirs: see
// testdata/root in their folders.
var realStores = map[string]func(t *testing.T) (storage.Storage, error){
	"memory": func(*testing.T) (storage.Storage, error) { return new(memory.Store), nil },
	"sqlite": func(t *testing.T) (storage.Storage, error) {
		return stored(sqlite.Open(filepath.Join(t.TempDir(), "store"), nil))
	},
	"bolt": func(t *testing.T) (storage.Storage, error) {
		return stored(bolt.Open(filepath.Join(t.TempDir(), "store"), nil))
	},
	"postgres": func(t *testing.T) (storage.Storage, error) {
		return stored(postgres.Open(ctx, pgtest.URL(t), nil))
	},
}

// onAllStores runs f on a new store of each kind, in real time.
func onAllStores(t *testing.T, f func(t *testing.T, s storage.Storage)) {
	t.Helper()
	for name, open := range realStores {
		t.Run(name, func(t *testing.T) {
			s, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() }) // after those of f
			f(t, s)
		})
	}
}

// soon waits, for a minute at most, for what must be there.
func soon[Out any](h *engine.Handle[Out]) (Out, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return h.Result(ctx)
}

// A between has something happen after the first answer to a call of its kind.
type between struct {
	storage.Storage
	get, scan string // prefix of the key, or of the range
	happens   func()
	once      sync.Once
}

func (b *between) Unwrap() storage.Storage { return b.Storage }

func (b *between) Get(ctx context.Context, key []byte) ([]byte, error) {
	v, err := b.Storage.Get(ctx, key)
	if b.get != "" && strings.HasPrefix(string(key), b.get) {
		b.once.Do(b.happens)
	}
	return v, err
}

func (b *between) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := b.Storage.Scan(ctx, r)
	if b.scan != "" && strings.HasPrefix(string(r.Start), b.scan) {
		b.once.Do(b.happens)
	}
	return page, err
}

// What is read while its workflow is purged is not damaged: it is gone, or the id has a
// new generation, which is read instead. What is missing of a workflow that is there is
// damage.
func TestReadingWhatIsPurgedMeanwhile(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := &engine.Workflow[string, string]{Name: "w", Func: func(run *engine.Run, in string) (string, error) { return in, nil }}
		p := boot(t, s, wf)
		for _, c := range []struct {
			verb      string
			get, scan string
			// read returns what it has read of the generation in which the input was "new".
			read func(e *engine.Engine) (new bool, err error)
		}{
			{verb: "Result", get: "wf:o", read: func(e *engine.Engine) (bool, error) {
				got, err := wf.Handle(e, "o").Result(ctx)
				return got == "new", err
			}},
			{verb: "Export", get: "wf:o", read: func(e *engine.Engine) (bool, error) {
				var b bytes.Buffer
				err := e.Export(ctx, "o", &b)
				return strings.Contains(b.String(), `"new"`), err
			}},
			{verb: "Export, later", get: "wf:o:in", read: func(e *engine.Engine) (bool, error) {
				var b bytes.Buffer
				err := e.Export(ctx, "o", &b)
				return strings.Contains(b.String(), `"new"`), err
			}},
			{verb: "History", get: "wf:o", read: func(e *engine.Engine) (bool, error) {
				for _, err := range e.History(ctx, "o") {
					if err != nil {
						return false, err
					}
				}
				return false, nil
			}},
			{verb: "Signals", get: "wf:o", scan: "sig:", read: func(e *engine.Engine) (bool, error) {
				for i, err := range e.Signals(ctx, "o") {
					if err != nil {
						return false, err
					}
					if i.Indeterminate {
						t.Errorf("%+v", i)
					}
				}
				return true, nil
			}},
		} {
			for _, anew := range []bool{false, true} {
				result(t, start(t, wf, p, "o", "old"))
				reader := made(t, &between{Storage: s, get: c.get, happens: func() {
					if err := p.Purge(ctx, "o", audit); err != nil {
						t.Error(err)
					}
					if anew {
						result(t, start(t, wf, p, "o", "new"))
					}
				}}, wf)
				young, err := c.read(reader)
				wantGone := !anew || c.verb == "History"
				if c.verb == "Signals" {
					wantGone = false // none are left, which is all that it tells
				}
				switch {
				case wantGone && !errors.Is(err, engine.ErrNotFound), !wantGone && (err != nil || !young):
					t.Errorf("%s, anew: %t: read of the new life: %t, %v", c.verb, anew, young, err)
				}
				reader.Close()
				if err := p.Purge(ctx, "o", audit); err != nil {
					t.Error(err)
				}
			}
		}

		for _, part := range [][]byte{keys.Output("o"), keys.Input("o"), nil} {
			result(t, start(t, wf, p, "o", "old"))
			if part == nil {
				part = []byte(logged(t, s, "o")[0])
			}
			if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(part)}}); err != nil {
				t.Fatal(err)
			}
			err := p.Export(ctx, "o", io.Discard)
			if strings.HasSuffix(string(part), ":out") {
				err = p.Result(ctx, "o", "w", nil)
			}
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("without %s: %v, want ErrCorrupt", part, err)
			}
			if err := p.Purge(ctx, "o", audit); err != nil {
				t.Error(err)
			}
		}
		p.stop(t)
	})
}

// A retry of a workflow that is purged meanwhile finds nothing, also if its id has a new generation.
func TestRetryOfWhatIsPurgedMeanwhile(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		fails := flow("fails", func(*engine.Run) (string, error) { return "", errors.New("no") })
		p := boot(t, s, fails)
		for _, anew := range []bool{false, true} {
			soon(start(t, fails, p, "o", ""))
			operator := made(t, &between{Storage: s, get: "wf:o", happens: func() {
				if err := p.Purge(ctx, "o", audit); err != nil {
					t.Error(err)
				}
				if anew {
					soon(start(t, fails, p, "o", ""))
				}
			}}, fails)
			err := operator.Resume(ctx, "o", audit)
			if !errors.Is(err, engine.ErrNotFound) {
				t.Errorf("anew: %t: %v", anew, err)
			}
			operator.Close()
		}
		p.stop(t)
	})
}

// A history of which the end was purged while its beginning was read is no history.
func TestExportIsNotCutOffByAPurge(t *testing.T) {
	s := new(memory.Store)
	wf := flow("w", func(run *engine.Run) (string, error) {
		for range 300 { // more than a page of checkpoints
			if _, err := engine.Step(run, "s", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
		}
		return "", nil
	})
	p := boot(t, s, wf)
	result(t, start(t, wf, p, "o", ""))
	reader := made(t, &between{Storage: s, scan: "log:", happens: func() {
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Error(err)
		}
	}}, wf)
	defer reader.Close()
	if err := reader.Export(ctx, "o", io.Discard); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("exported: %v, want ErrNotFound", err)
	}
	p.stop(t)
}

// missed counts how often a workflow's input or output was not there.
type missed struct {
	storage.Storage
	n atomic.Int64
}

func (m *missed) Unwrap() storage.Storage { return m.Storage }

func (m *missed) Get(ctx context.Context, key []byte) ([]byte, error) {
	v, err := m.Storage.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) && (bytes.Equal(key, keys.Input("o")) || bytes.Equal(key, keys.Output("o"))) {
		m.n.Add(1)
	}
	return v, err
}

// Result and Export beside Purge: each gets all of it, or is told that it is gone.
func TestReadingRacesWithPurge(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := flow("w", nil2)
		p := boot(t, s, wf)
		seen := &missed{Storage: s}
		reader := made(t, seen, wf)
		defer reader.Close()
		counts := map[string]int{}
		round := 0
		rounds, wanted := 10, int64(0)
		switch _, quick := s.(*memory.Store); {
		case os.Getenv("WEFT_TORTURE") != "":
			rounds, wanted = 1000, 20
		case quick:
			rounds, wanted = 150, 1
		}
		for ; round < rounds || seen.n.Load() < wanted && round < 100*rounds; round++ {
			result(t, start(t, wf, p, "o", ""))
			read := map[string]func() error{
				"Result": func() error { return reader.Result(ctx, "o", "w", nil) },
				"Export": func() error { return reader.Export(ctx, "o", io.Discard) },
			}
			var wg sync.WaitGroup
			var mu sync.Mutex
			for verb, f := range read {
				wg.Go(func() {
					for {
						err := f()
						mu.Lock()
						switch {
						case err == nil:
							counts[verb]++
						case !errors.Is(err, engine.ErrNotFound):
							t.Errorf("round %d: %s: %v", round, verb, err)
						}
						mu.Unlock()
						if err != nil {
							return
						}
					}
				})
			}
			if err := p.Purge(ctx, "o", audit); err != nil {
				t.Error(err)
			}
			wg.Wait()
			if t.Failed() {
				break
			}
		}
		t.Logf("%d rounds, in which a part was missing %d times; read: %v", round, seen.n.Load(), counts)
		if seen.n.Load() < wanted {
			t.Error("the race was not met")
		}
		p.stop(t)
	})
}

// A signal that is cleared when its receiver has just heard of it is no damage.
func TestSignalClearedWhileItIsReceived(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		wf := receiving(1)
		client := made(t, s, wf)
		defer client.Close()
		start(t, wf, client, "o", "")
		send(t, approved, client, "o", "first", "a")
		cleared := make(chan struct{})
		p := boot(t, &between{Storage: s, scan: "inbox:o:", happens: func() {
			if err := client.ClearSignal(ctx, "o", "approved", "a", audit); err != nil {
				t.Error(err)
			}
			close(cleared)
		}}, wf, func(c *engine.Config) { c.PollInterval = 10 * time.Millisecond })
		<-cleared
		send(t, approved, client, "o", "second", "b")
		if got, err := soon(wf.Handle(p, "o")); got != "second" {
			t.Errorf("received %q, %v", got, err)
		}
		if n := len(describe(t, p, "o").Attention); n != 0 {
			t.Errorf("%d reasons for attention", n)
		}
		for _, c := range historyOf(t, p.Engine, "o") {
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindHeld {
					t.Errorf("it was held: %s", e.Error)
				}
			}
		}
		p.stop(t)
	})
}
