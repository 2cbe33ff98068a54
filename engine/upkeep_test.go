package engine_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// A slowReads does not return from some reads before their context ends.
type slowReads struct {
	storage.Storage
	key, from []byte
	began     chan bool
}

func (s *slowReads) Unwrap() storage.Storage { return s.Storage }

func (s *slowReads) wait(ctx context.Context) error {
	select {
	case s.began <- true:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *slowReads) Get(ctx context.Context, key []byte) ([]byte, error) {
	if bytes.Equal(key, s.key) {
		return nil, s.wait(ctx)
	}
	return s.Storage.Get(ctx, key)
}

func (s *slowReads) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	if bytes.Equal(r.Start, s.from) {
		return nil, s.wait(ctx)
	}
	return s.Storage.Scan(ctx, r)
}

// Run, told to stop while no run is in memory, does not wait for StopTimeout because the engine completes lists, or asks
// children to stop.
func TestUpkeepDoesNotDelayTheStop(t *testing.T) {
	for name, slow := range map[string]*slowReads{
		"lists":      {from: keys.IndexAll().Start},
		"dismissals": {from: keys.Dismissals().Start},
		"a child":    {key: keys.Workflow("parent")},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				slow.Storage, slow.began = fresh(t), make(chan bool, 1)
				made(t, slow.Storage)
				b := storage.Batch{Ops: []storage.Op{storage.Delete(keys.Meta("lists")), storage.Put(keys.Dismissal("parent", "g"), nil)}}
				if err := slow.Storage.Commit(ctx, b); err != nil {
					t.Fatal(err)
				}
				p := boot(t, slow, flow("w", nil2), func(c *engine.Config) { c.StopTimeout = time.Hour })
				<-slow.began
				began := time.Now()
				p.stop(t)
				if took := time.Since(began); took > time.Second {
					t.Errorf("Run has returned after %v", took)
				}
			})
		})
	}
}
