package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/sqlite"
)

var damaged = map[string]func(path string) (storage.Storage, error){
	"sqlite": func(path string) (storage.Storage, error) { return stored(sqlite.Open(path, nil)) },
	"bolt":   func(path string) (storage.Storage, error) { return stored(bolt.Open(path, nil)) },
}

func stored[S storage.Storage](s S, err error) (storage.Storage, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// A file with one flipped bit, or cut short, gives what was written or a typed
// error, and never another payload or a dead process.
func TestDamagedFileNeverGivesAnotherPayload(t *testing.T) {
	torture.Slow(t)
	rounds := torture.Rounds(50, 50, 10) // the gate has more without the race detector
	if n, _ := strconv.Atoi(os.Getenv("WEFT_DAMAGES")); n > 0 {
		rounds = n
	}
	seed, _ := seedToPlay(t)
	for name, open := range damaged {
		intact, want := sample(t, open)
		used := pages(intact)
		for kind, damage := range map[string]func(r *rand.Rand, data []byte) []byte{
			"flip": func(r *rand.Rand, data []byte) []byte {
				data[min(used[r.IntN(len(used))]+r.IntN(pageSize), len(data)-1)] ^= 1 << r.IntN(8)
				return data
			},
			"truncate": func(r *rand.Rand, data []byte) []byte {
				return data[:min(used[r.IntN(len(used))]+r.IntN(pageSize), len(data)-1)]
			},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Logf("WEFT_SEED=%d", seed)
				r := rand.New(rand.NewPCG(seed, 1))
				path := filepath.Join(t.TempDir(), "store")
				met := map[string]int{}
				noticed := func() int { return met["refused to open"] + met["typed error"] }
				for i := 0; i < rounds || noticed() == 0 && i < 20*rounds; i++ {
					if err := os.WriteFile(path, damage(r, bytes.Clone(intact)), 0o600); err != nil {
						t.Fatal(err)
					}
					examine(t, open, path, want, met)
					for _, rest := range []string{"-wal", "-shm"} {
						os.Remove(path + rest)
					}
				}
				t.Log(met)
				if noticed() == 0 {
					t.Error("no damage was met")
				}
			})
		}
	}
}

const pageSize = 4096

// pages are where something is: the rest of a file is allocated in advance.
func pages(file []byte) (used []int) {
	for at := 0; at < len(file); at += pageSize {
		if len(bytes.Trim(file[at:min(at+pageSize, len(file))], "\x00")) > 0 {
			used = append(used, at)
		}
	}
	return used
}

// sample is the bytes of a file with some workflows in it, and what they came to.
func sample(t *testing.T, open func(string) (storage.Storage, error)) (file []byte, want map[string]string) {
	path := filepath.Join(t.TempDir(), "store")
	s, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	say := &activity.Activity[int, string]{Name: "say", Run: func(_ context.Context, i int) (string, error) {
		return strings.Repeat(fmt.Sprint("result ", i, " "), 20), nil
	}}
	go1 := &signal.Signal[string]{Name: "go"}
	wf := &engine.Workflow[int, string]{Name: "talk", Func: func(run *engine.Run, i int) (string, error) {
		s, err := go1.Receive(run)
		if err != nil {
			return "", err
		}
		a, err := say.Do(run, i)
		return s + a, err
	}}
	eng, stop := running(t, s, wf)
	want = map[string]string{}
	for i := range 12 {
		h, err := wf.Start(t.Context(), eng, fmt.Sprint("talk ", i), i)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := go1.Send(t.Context(), eng, h.ID(), fmt.Sprint("signal ", i, " "), &signal.Options{ID: "1"}); err != nil {
			t.Fatal(err)
		}
		if want[h.ID()], err = h.Result(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if file, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return file, want
}

// examine asks a damaged file for everything that was written.
func examine(t *testing.T, open func(string) (storage.Storage, error), path string, want map[string]string, met map[string]int) {
	s, err := open(path)
	if err != nil {
		typed(t, path, err)
		met["refused to open"]++
		return
	}
	defer s.Close()
	eng, err := engine.New(engine.Config{Storage: s, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		typed(t, path, err)
		met["refused to open"]++
		return
	}
	defer eng.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for id, result := range want {
		var got string
		switch err := eng.Result(ctx, id, "talk", &got); {
		case errors.Is(err, engine.ErrNotFound):
			met["lost"]++ // nothing of it is there, or the file begins anew
		case err != nil:
			typed(t, path, err)
			met["typed error"]++
		case got != result:
			t.Errorf("result of %q: got %q, want %q", id, got, result)
		default:
			met["intact"]++
		}
		for c, err := range eng.History(ctx, id) {
			if err != nil {
				if !errors.Is(err, engine.ErrNotFound) {
					typed(t, path, err)
				}
				break
			}
			for _, e := range c.Events {
				if len(e.Result) > 0 && !strings.Contains(result, strings.Trim(string(e.Result), `"`)) {
					t.Errorf("history of %q: got %q, which was never written", id, e.Result)
				}
			}
		}
	}
}

// typed reports an error that names neither a record nor the file.
func typed(t *testing.T, path string, err error) {
	t.Helper()
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hangs: %v", err)
	}
	if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrFutureFormat) && !strings.Contains(err.Error(), path) {
		t.Errorf("neither typed nor naming the file: %v", err)
	}
}

// A contrary store says of some keys that nothing is there, and then that they
// cannot be put because something is.
type contrary struct {
	storage.Storage
	hides func(key string) bool
}

func (c *contrary) Unwrap() storage.Storage { return c.Storage }

func (c *contrary) Get(ctx context.Context, key []byte) ([]byte, error) {
	if c.hides != nil && c.hides(string(key)) {
		return nil, storage.ErrNotFound
	}
	return c.Storage.Get(ctx, key)
}

// Whatever is decided anew after a conflict comes to an end also on a store that
// contradicts itself.
func TestContraryStoreIsDamage(t *testing.T) {
	one := &signal.Signal[string]{Name: "one"}
	wf := flow("wait", func(run *engine.Run) (string, error) { return one.Receive(run) })
	for _, c := range []struct {
		name  string
		hides func(key string) bool
		do    func(e *engine.Engine) error
	}{
		{"stamp", func(k string) bool { return k == "meta:store" }, nil},
		{"start", func(k string) bool { return strings.HasPrefix(k, "wf:") }, func(e *engine.Engine) error {
			_, err := wf.Start(ctx, e, "a", "")
			return err
		}},
		{"signal", func(k string) bool { return strings.HasPrefix(k, "sig") }, func(e *engine.Engine) error {
			_, err := one.Send(ctx, e, "a", "x", &signal.Options{ID: "1"})
			return err
		}},
	} {
		s := &contrary{Storage: new(memory.Store)}
		e := made(t, s, wf)
		start(t, wf, e, "a", "")
		if _, err := one.Send(ctx, e, "a", "x", &signal.Options{ID: "1"}); err != nil {
			t.Fatal(err)
		}
		s.hides = c.hides
		if c.do == nil {
			c.do = func(*engine.Engine) error {
				_, err := engine.New(engine.Config{Storage: s, Logger: quiet})
				return err
			}
		}
		if err := c.do(e); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", c.name, err)
		}
	}
}

// A record that must be changed and is never as it was read a moment ago.
func TestContraryRequestIsDamage(t *testing.T) {
	wf := flow("nothing", nil2)
	s := &refusing{Storage: new(memory.Store)}
	e := made(t, s, wf)
	start(t, wf, e, "a", "")
	s.refuse = true
	if err := e.Cancel(ctx, "a", engine.Actor{}); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

// A record that was changed between a read and a commit, and changed back, a few times, is no damage.
func TestRecordThatIsChangedBack(t *testing.T) {
	wf := flow("nothing", nil2)
	s := &refusing{Storage: new(memory.Store)}
	e := made(t, s, wf)
	start(t, wf, e, "a", "")
	s.left = 5
	if err := e.Cancel(ctx, "a", engine.Actor{}); err != nil || s.left != 0 {
		t.Errorf("got %v, and %d refusals are left", err, s.left)
	}
	if describe(t, &process{Engine: e}, "a").Cancel == nil {
		t.Error("it is not asked to stop")
	}
}

// A refusing store refuses commits: all, or those that are left.
type refusing struct {
	storage.Storage
	refuse bool
	left   int
}

func (r *refusing) Unwrap() storage.Storage { return r.Storage }

func (r *refusing) Commit(ctx context.Context, b storage.Batch) error {
	if r.refuse || r.left > 0 {
		r.left--
		return storage.ErrConflict
	}
	return r.Storage.Commit(ctx, b)
}
