package engine_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/programs"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// Random programs of all that a workflow can do, struck at random calls to the
// store, come to what they come to undisturbed: the same result, the same outcomes,
// a history that tells each thing once (CK2, CK4). What a life of one has seen, in
// which order and at what time, the next one sees again, and so does a replay of
// the history (CK6, and the interleavings 12, 13 and 28).
//
// The stores need not survive a power loss here, and are quicker without.
func TestRandomPrograms(t *testing.T) {
	for adapter, store := range map[string]sweep.Store{
		"memory": sweepStores["memory"],
		"sqlite": onFile(func(path string) (storage.Storage, error) {
			return sqlite.Open(path, &sqlite.Options{Relaxed: true})
		}),
		"bolt": sweepStores["bolt"],
	} {
		t.Run(adapter, func(t *testing.T) { playPrograms(t, adapter, store) })
	}
}

func TestRandomProgramsOnPostgres(t *testing.T) {
	url := pgtest.Start(t, "fsync=off").URL("postgres")
	plays := 0
	playPrograms(t, "postgres", sweep.Store{Open: func(t testing.TB) storage.Storage {
		plays++
		s, err := postgres.New(context.Background(), pgtest.Pool(t, url), &postgres.Options{Schema: fmt.Sprintf("program%d", plays), NoListen: true, LeaseOnly: true, FsyncOff: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}})
}

func playPrograms(t *testing.T, adapter string, store sweep.Store) {
	n := torture.Rounds(2000, 100, 10)
	if adapter == "memory" {
		n = torture.Rounds(20_000, 300, 60)
	}
	if testing.Short() {
		n = min(n, 60)
	}
	seed, _ := seedToPlay(t)
	t.Logf("WEFT_SEED=%d", seed)
	var y programs.Tally
	enough := func() bool { return y.Blows >= n && y.Cut >= n/2 && y.Children >= n/2 && y.Resumed > 0 }
	for i := 0; i < n || !enough() && i < 20*n; i++ { // what a program has is drawn
		y.Check(t, seed+uint64(i), store)
	}
	t.Logf("%+v", y)
	if !enough() {
		t.Errorf("too little was exercised: %+v", y)
	}
}
