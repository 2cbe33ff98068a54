package engine_test

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// outgrow makes s the store of a newer release, in each way in which that can be said.
// It returns the stamp that was there.
func outgrow(t testing.TB, s storage.Storage, how string) (was []byte) {
	t.Helper()
	key := keys.Meta("store")
	format, version, ownership := uint64(2), byte(1), engine.OwnershipCASRequired.String()
	switch how {
	case "format":
		format = 3
	case "record":
		version = 2
	case "ownership":
		ownership = "of tomorrow"
	}
	raw := stampOf(t, format, version, ownership)
	was, err := s.Get(ctx, key)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Fatal(err)
	}
	put(t, s, key, raw)
	return was
}

// stampOf returns the record of a store with a format and an ownership mode.
func stampOf(t testing.TB, format uint64, version byte, ownership string) []byte {
	t.Helper()
	raw, err := record.Seal(keys.Meta("store"), version, &struct {
		Format    uint64 `cbor:"1,keyasint"`
		Shards    int    `cbor:"2,keyasint"`
		Ownership string `cbor:"3,keyasint"`
	}{format, 1, ownership}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

var outgrownHow = []string{"format", "record", "ownership"}

func contents(t testing.TB, s storage.Storage) map[string]string {
	t.Helper()
	all := map[string]string{}
	for e, err := range storage.All(ctx, s, storage.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		all[string(e.Key)] = string(e.Value)
	}
	return all
}

// FMT-13, FMT-14, FMT-26: an engine does not open the store of a newer release, and does not run
// on one that has become it since it was opened. It writes nothing.
func TestStoreOfANewerReleaseIsRefused(t *testing.T) {
	onEachStore(t, func(t *testing.T, s storage.Storage) {
		wf := receiving(1)
		client := made(t, s)
		start(t, wf, client, "o", "")
		client.Close()
		for _, how := range outgrownHow {
			opened := made(t, s, wf)
			was := outgrow(t, s, how)
			before := contents(t, s)
			if e, err := engine.New(engine.Config{Storage: s, Logger: quiet, Workflows: []engine.Definition{wf}}); !errors.Is(err, storage.ErrFutureFormat) {
				if err == nil {
					e.Close()
				}
				t.Errorf("%s: New: %v, want ErrFutureFormat", how, err)
			}
			soon, cancel := context.WithTimeout(ctx, time.Minute)
			err := opened.Run(soon)
			cancel()
			if !errors.Is(err, storage.ErrFutureFormat) {
				t.Errorf("%s: Run: %v, want ErrFutureFormat", how, err)
			}
			opened.Close()
			if after := contents(t, s); !maps.Equal(before, after) {
				t.Errorf("%s: something was written", how)
			}
			put(t, s, keys.Meta("store"), was)
		}
	})
}

// FMT-13, FMT-26: an engine under whose runs the store becomes a newer release's puts
// them down within a few polls: attempts are told to stop, Run returns why, and of all
// that it does only its signing off is written from then on. What it had recorded is
// there, and the runs go on where the store can be opened.
func TestStoreIsOutgrownUnderALivingEngine(t *testing.T) {
	for _, how := range outgrownHow {
		t.Run(how, func(t *testing.T) {
			onEachStore(t, func(t *testing.T, s storage.Storage) {
				var stands, outgrown atomic.Bool
				stands.Store(true)
				causes := make(chan error, 10)
				slow := &activity.Activity[string, string]{Name: "slow", Timeout: 1000 * time.Hour, Run: func(ctx context.Context, in string) (string, error) {
					if !stands.Load() {
						return "done", nil
					}
					<-ctx.Done()
					causes <- context.Cause(ctx)
					return "", context.Cause(ctx)
				}}
				busy := flow("busy", func(run *engine.Run) (string, error) { return slow.Do(run, "") })
				ticking := flow("ticking", func(run *engine.Run) (string, error) {
					for range 90 {
						if err := run.Sleep(time.Second); err != nil {
							return "", err
						}
					}
					return "done", nil
				})
				wf := receiving(1)
				written := make(chan storage.Batch, 10_000)
				f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
					if c.Method == "Commit" && outgrown.Load() {
						written <- kept(c.Batch)
					}
					return storagetest.None
				})
				p := bootOn(t, f, busy, ticking, wf)
				start(t, busy, p, "busy", "")
				start(t, ticking, p, "ticking", "")
				start(t, wf, p, "o", "")
				time.Sleep(time.Minute + time.Second/2)
				was := outgrow(t, s, how)
				at := time.Now()
				var err error
				select {
				case err = <-p.done:
				case <-time.After(10 * time.Minute):
					t.Fatal("it runs on")
				}
				p.done <- nil // for the end of the process
				if took := time.Since(at); !errors.Is(err, storage.ErrFutureFormat) || took > 20*time.Second {
					t.Errorf("Run: %v after %v, want ErrFutureFormat within a few polls", err, took)
				}
				if cause := <-causes; cause != activity.ErrStopped {
					t.Errorf("the attempt was told %v, want ErrStopped", cause)
				}
				outgrown.Store(true)
				time.Sleep(time.Hour)
				for len(written) > 0 {
					t.Errorf("written when Run had returned: %v", <-written)
				}
				stands.Store(false)
				put(t, s, keys.Meta("store"), was)
				p.close()
				next := boot(t, s, busy, ticking, wf)
				send(t, approved, next, "o", "v", "")
				if got := result(t, busy.Handle(next, "busy")) + result(t, ticking.Handle(next, "ticking")) + result(t, wf.Handle(next, "o")); got != "donedonev" {
					t.Errorf("results %q", got)
				}
			})
		})
	}
}
