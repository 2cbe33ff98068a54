package npm_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/world"
)

// Readers of streams whose connections are cut go on where they were. Writers may write any number of chunks at once.
func TestStreams(t *testing.T) {
	needNPM(t)
	s, err := sqlite.Open(filepath.Join(t.TempDir(), "store"), nil)
	srv := serve(t, opened(t, s, err), world.Options{})
	smallSrv := serve(t, small{new(memory.Store)}, world.Options{})
	vitest(t, "test/streams.test.js", "WEFT_WORLD_URL="+srv.URL, "WEFT_SMALL_URL="+smallSrv.URL)
}

// A small store takes as much in a batch as etcd does with its defaults.
type small struct{ storage.Storage }

func (s small) Capabilities() storage.Capabilities {
	c := s.Storage.Capabilities()
	c.MaxBatch = storage.Size{Ops: 127, Bytes: 1 << 20}
	return c
}

func (s small) Commit(ctx context.Context, b storage.Batch) error {
	if err := b.Check(s.Capabilities().MaxBatch); err != nil {
		return err
	}
	return s.Storage.Commit(ctx, b)
}
