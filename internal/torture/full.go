//go:build linux || darwin

package torture

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-go/weft/storage"
)

// Full prevents files from growing while many goroutines commit, and then allows it again. All
// acknowledged batches must be present at all times, and the store must recover by itself, within seconds.
func Full(t *testing.T, open Open) {
	Slow(t)
	if Alone(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	acked := map[string]bool{}
	for round := range 5 {
		LimitFiles(t, uint64(round+1)<<20)
		var failure error
		for n := 0; failure == nil; n++ {
			if n > 1000 {
				t.Fatal("the files never reached the limit")
			}
			acks, err := putMany(t, s, fmt.Sprintf("%d:%d", round, n))
			for _, k := range acks {
				acked[k] = true
			}
			failure = err
		}
		if errors.Is(failure, storage.ErrConflict) || errors.Is(failure, storage.ErrCorrupt) {
			t.Errorf("got %v, want an error that says that there is no room", failure)
		}
		t.Logf("%d acknowledged, then: %v", len(acked), failure)
		holdsAll(t, s, acked)
		LimitFiles(t, unix.RLIM_INFINITY)
		acks, err := putMany(t, s, fmt.Sprintf("%d:again", round))
		for start := time.Now(); err != nil && time.Since(start) < 30*time.Second; time.Sleep(50 * time.Millisecond) {
			acks, err = putMany(t, s, fmt.Sprintf("%d:again", round))
		}
		if err != nil {
			t.Fatalf("got %v when there was room again, want nil", err)
		}
		for _, k := range acks {
			acked[k] = true
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	holdsAll(t, s, acked)
}

// putMany puts one key from each of 20 goroutines. It returns the acknowledged keys and one of
// the errors.
func putMany(t *testing.T, s storage.Storage, name string) (acks []string, failure error) {
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() {
			errs[i] = s.Commit(t.Context(), storage.Batch{
				Ops: []storage.Op{storage.Put(fmt.Appendf(nil, "%s:%d", name, i), make([]byte, 1000))},
			})
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err == nil {
			acks = append(acks, fmt.Sprintf("%s:%d", name, i))
		} else {
			failure = err
		}
	}
	return acks, failure
}

func holdsAll(t *testing.T, s storage.Storage, acked map[string]bool) {
	t.Helper()
	for k := range acked {
		if _, err := s.Get(t.Context(), []byte(k)); err != nil {
			t.Fatalf("%s was acknowledged: got %v", k, err)
		}
	}
}

// LimitFiles makes this process's writes beyond the given file size fail.
func LimitFiles(t *testing.T, size uint64) {
	t.Helper()
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &l); err != nil {
		t.Fatal(err)
	}
	before := l.Cur
	l.Cur = min(size, l.Max)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Cur = before
		unix.Setrlimit(unix.RLIMIT_FSIZE, &l)
	})
}
