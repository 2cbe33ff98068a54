package torture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/storage"
)

// Kill starts a child process that commits, kills it at a random time, and checks that all its
// acknowledged batches are present and that no batch is there in part. It does so 20 times, or
// as often as WEFT_KILLS says.
func Kill(t *testing.T, open Open) {
	Slow(t)
	r := seeded(t)
	path := filepath.Join(t.TempDir(), "store.db")
	kills, acked := count("WEFT_KILLS", 20), 0
	for n := range kills {
		// Every other child is killed while it is new. The others have acknowledged enough by
		// then, however slow the disk is.
		after := 1
		if n%2 == 0 {
			after = 20
		}
		acks := killed(t, r, path, after)
		acked += len(acks)
		checkAcked(t, open, path, acks)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d kills, %d commits acknowledged", kills, acked)
	if acked < 10*kills {
		t.Errorf("got %d commits acknowledged, want at least %d for this to mean something", acked, 10*kills)
	}
}

// killed returns what a child acknowledged before it was killed, at a random time after it had
// acknowledged so many.
func killed(t *testing.T, r *rand.Rand, path string, after int) []string {
	t.Helper()
	c := child(t, "writer", path)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var acks []string
	for lines.Scan() {
		if acks = append(acks, lines.Text()); len(acks) == after {
			time.AfterFunc(time.Duration(1+r.IntN(50))*time.Millisecond, func() { c.Process.Kill() })
		}
	}
	c.Wait()
	if len(acks) == 0 {
		t.Fatal("the child died before it acknowledged anything")
	}
	return acks
}

func checkAcked(t *testing.T, open Open, path string, acks []string) {
	t.Helper()
	s, err := open(path)
	if err != nil {
		t.Fatalf("open after a kill: %v", err)
	}
	defer s.Close()
	for _, a := range acks {
		for _, key := range []string{"a:" + a, "b:" + a} {
			if v, err := s.Get(t.Context(), []byte(key)); err != nil || string(v) != key {
				t.Errorf("%s was acknowledged: got %q and error %v", key, v, err)
			}
		}
	}
	for e, err := range storage.All(t.Context(), s, storage.Prefix([]byte("a:"))) {
		if err != nil {
			t.Fatal(err)
		}
		other := "b:" + strings.TrimPrefix(string(e.Key), "a:")
		if _, err := s.Get(t.Context(), []byte(other)); err != nil {
			t.Errorf("%s is there: got error %v for %s of the same batch", e.Key, err, other)
		}
	}
}

// writeAndSay commits, prints what was acknowledged, and never returns.
func writeAndSay(open Open, path string) {
	s, err := open(path)
	if err != nil {
		panic(err)
	}
	life := time.Now().UnixNano()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("%d:%d:%d", life, w, n)
				a, b := []byte("a:"+id), []byte("b:"+id)
				err := s.Commit(context.Background(), storage.Batch{
					If:  []storage.Condition{storage.Absent(a), storage.Absent(b)},
					Ops: []storage.Op{storage.Put(a, a), storage.Put(b, b)},
				})
				if err != nil {
					panic(errors.Join(err, errors.New(id)))
				}
				fmt.Fprintln(os.Stdout, id) // a single write
			}
		})
	}
	wg.Wait()
}
