package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
)

func openInside(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "store.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func batch(key string, value []byte) storage.Batch {
	return storage.Batch{Ops: []storage.Op{storage.Put([]byte(key), value)}}
}

// nest makes a key of the store a bucket, as a flipped bit could.
func nest(t *testing.T, s *Store, key string) {
	t.Helper()
	if err := s.db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.Bucket(s.bucket).CreateBucket([]byte(key))
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestNestedBucketIsCorrupt accesses an entry that is marked as a bucket, in every possible
// way.
func TestNestedBucketIsCorrupt(t *testing.T) {
	s := openInside(t)
	if err := s.Commit(t.Context(), batch("a", nil)); err != nil {
		t.Fatal(err)
	}
	bad := []byte("bad")
	nest(t, s, "bad")
	commit := func(b storage.Batch) error { return s.Commit(t.Context(), b) }
	for what, err := range map[string]error{
		"Get":           second(s.Get(t.Context(), bad)),
		"Scan":          second(s.Scan(t.Context(), storage.Range{})),
		"reverse Scan":  second(s.Scan(t.Context(), storage.Range{Reverse: true})),
		"IsAbsent":      commit(storage.Batch{If: []storage.Condition{storage.Absent(bad)}, Ops: []storage.Op{storage.Put(bad, nil)}}),
		"IsPresent":     commit(storage.Batch{If: []storage.Condition{storage.Present(bad)}}),
		"IsEqual":       commit(storage.Batch{If: []storage.Condition{storage.Equal(bad, nil)}}),
		"PutOp":         commit(batch("bad", nil)),
		"DeleteOp":      commit(storage.Batch{Ops: []storage.Op{storage.Delete(bad)}}),
		"DeleteRangeOp": commit(storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Range{})}}),
	} {
		if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), `"bad"`) {
			t.Errorf("%s: got %v, want ErrCorrupt and the key", what, err)
		}
	}
	if v, err := s.Get(t.Context(), []byte("a")); v == nil || err != nil {
		t.Errorf("its neighbour: got %v and error %v, want what was put", v, err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestNilValueIsNoBucket reads a value that was put as nil in the same transaction.
func TestNilValueIsNoBucket(t *testing.T) {
	s := openInside(t)
	for _, verdict := range commitTogether(t, s,
		batch("a", nil),
		storage.Batch{
			If:  []storage.Condition{storage.Equal([]byte("a"), nil)},
			Ops: []storage.Op{storage.Put([]byte("b"), nil)},
		},
		storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Range{})}},
	) {
		if verdict != nil {
			t.Errorf("got %v, want nil", verdict)
		}
	}
}

// commitTogether applies batches as one group.
func commitTogether(t *testing.T, s *Store, batches ...storage.Batch) []error {
	t.Helper()
	verdicts := make([]error, len(batches))
	if err := s.apply(batches, verdicts); err != nil {
		t.Fatal(err)
	}
	return verdicts
}

// TestOneBadBatchFailsAlone makes one of 200 batches fail in a way that cannot be foreseen:
// its key is a bucket.
func TestOneBadBatchFailsAlone(t *testing.T) {
	s := openInside(t)
	nest(t, s, "bad")
	for range 10 {
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() {
				key := fmt.Sprint("key ", i)
				if i == 77 {
					key = "bad"
				}
				err := s.Commit(t.Context(), batch(key, nil))
				if bad := err != nil; bad != (i == 77) {
					t.Errorf("%s: got %v", key, err)
				}
			})
		}
		wg.Wait()
	}
}

// TestFileCutWhileOpen truncates the file while it is mapped.
func TestFileCutWhileOpen(t *testing.T) {
	for _, left := range []int64{200 << 10, 16 << 10, 4 << 10, 0} {
		s := openInside(t)
		for i := range 100 {
			if err := s.Commit(t.Context(), batch(fmt.Sprintf("key %03d", i), make([]byte, 3000))); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Truncate(s.path, left); err != nil {
			t.Fatal(err)
		}
		corrupt := 0
		note := func(err error) {
			t.Helper()
			if err == nil || errors.Is(err, storage.ErrNotFound) {
				return
			}
			if corrupt++; !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), s.path) {
				t.Errorf("%d bytes left: got %v, want ErrCorrupt and the path", left, err)
			}
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i := range 100 {
			wg.Go(func() {
				_, err := s.Get(t.Context(), fmt.Appendf(nil, "key %03d", i))
				mu.Lock()
				defer mu.Unlock()
				note(err)
			})
		}
		wg.Wait()
		_, err := s.Scan(t.Context(), storage.Range{})
		note(err)
		if corrupt == 0 {
			t.Errorf("%d bytes left: got no error", left)
		}
		for i := range 5 {
			s.Commit(t.Context(), batch(fmt.Sprintf("key %03d", 20*i), nil)) // any result is allowed
		}
		s.Close()
	}
}

// TestCycleInTreeIsCorrupt makes a branch page refer to itself. bbolt would recurse until
// the process dies.
func TestCycleInTreeIsCorrupt(t *testing.T) {
	s := openInside(t)
	for i := range 50 {
		if err := s.Commit(t.Context(), batch(fmt.Sprintf("key %03d", i), make([]byte, 1000))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	c := checker{file: openFile(t, s.path)}
	if !c.readMeta() {
		t.Fatal("no meta")
	}
	bitten := 0
	for id := range c.meta.Pages { // the current root is among them
		p := data[id*uint64(c.meta.PageSize):]
		if order.Uint16(p[8:]) == branchPage {
			order.PutUint64(p[headerSize+8:], id)
			bitten++
		}
	}
	if bitten == 0 {
		t.Fatal("no page with branches")
	}
	if err := os.WriteFile(s.path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Open(s.path, nil); !errors.Is(err, storage.ErrCorrupt) {
		r.Close()
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

func openFile(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// reading has two goroutines call read again and again, until it fails or end is called, which waits for them.
func reading(t *testing.T, read func() error) (end func()) {
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := read(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	return func() {
		close(stop)
		wg.Wait()
	}
}

func TestReadersDoNotWaitForTheWriter(t *testing.T) {
	torture.Slow(t)
	s := openInside(t)
	end := reading(t, func() error { return second(s.Scan(t.Context(), storage.Range{})) })
	for i := range 500 {
		if err := s.Commit(t.Context(), batch(fmt.Sprint("key ", i%100), make([]byte, 10_000+i))); err != nil {
			t.Fatal(err)
		}
	}
	end()
}

// TestMapGrows makes the file larger than its initial mapping while others read.
func TestMapGrows(t *testing.T) {
	torture.Slow(t)
	s, err := open(filepath.Join(t.TempDir(), "store.db"), Options{}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	end := reading(t, func() error { return second(s.Scan(t.Context(), storage.Range{Limit: 3})) })
	for i := range 40 {
		if err := s.Commit(t.Context(), batch(fmt.Sprint("key ", i), make([]byte, 1<<20))); err != nil {
			t.Fatal(err)
		}
	}
	end()
	if v, err := s.Get(t.Context(), []byte("key 3")); err != nil || len(v) != 1<<20 {
		t.Errorf("got %d bytes and error %v, want what was put", len(v), err)
	}
}

// Conditions agree with the file after a group of which a part was rolled back.
func TestConditionsAgreeWithTheFile(t *testing.T) {
	s := openInside(t)
	nest(t, s, "bad")
	if err := s.Commit(t.Context(), batch("key", []byte("1"))); err != nil {
		t.Fatal(err)
	}
	change := storage.Batch{If: []storage.Condition{storage.Equal([]byte("key"), []byte("1"))}, Ops: []storage.Op{storage.Put([]byte("key"), []byte("2"))}}
	verdicts := make([]error, 2)
	if err := s.apply([]storage.Batch{change, batch("bad", nil)}, verdicts); err == nil {
		t.Fatal("a bucket was overwritten")
	}
	if err := s.apply([]storage.Batch{change}, verdicts[:1]); err != nil || verdicts[0] != nil {
		t.Errorf("applied again: %v, %v", err, verdicts[0])
	}
	for _, c := range []storage.Condition{storage.Equal([]byte("key"), []byte("2")), storage.Present([]byte("key"))} {
		if holds, known := s.known.Judge(c); known && !holds {
			t.Errorf("condition %v is judged wrong", c.Kind)
		}
	}
}

// A disk that is full when the meta page is synced: the map shows the commit, and the disk may not have it.
func TestFullAtTheSyncOfTheMetaPage(t *testing.T) {
	for _, written := range []bool{false, true} {
		s := openInside(t)
		if err := s.Commit(t.Context(), batch("a", nil)); err != nil {
			t.Fatal(err)
		}
		var last int
		if err := s.db.View(func(tx *bbolt.Tx) error { last = tx.ID(); return nil }); err != nil {
			t.Fatal(err)
		}
		if !written {
			last++ // the next one, which was not
		}
		s.failed(last, syscall.ENOSPC)
		_, err := s.Get(t.Context(), []byte("a"))
		if written != errors.Is(err, syscall.ENOSPC) || !written && err != nil {
			t.Errorf("written = %v: Get fails with %v", written, err)
		}
	}
}

// TestReadsShowWhatIsSynced reads while a commit syncs the meta page, which the map already shows.
func TestReadsShowWhatIsSynced(t *testing.T) {
	for what, failure := range map[string]error{"synced": nil, "not synced": syscall.EIO} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openInside(t)
				if err := s.Commit(t.Context(), batch("a", []byte("1"))); err != nil {
					t.Fatal(err)
				}
				tx, err := s.db.Begin(true)
				if err != nil {
					t.Fatal(err)
				}
				end := s.flush(tx.ID())
				if v, err := s.Get(t.Context(), []byte("a")); err != nil || string(v) != "1" {
					t.Errorf("before the meta page is written: got %q and error %v, want 1", v, err)
				}
				if err := errors.Join(tx.Bucket(s.bucket).Put([]byte("a"), []byte("2")), tx.Commit()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if v, err := s.Get(ctx, []byte("a")); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("before it is synced: got %q and error %v, want to wait", v, err)
				}
				var wg sync.WaitGroup
				wg.Go(func() {
					v, err := s.Get(t.Context(), []byte("a"))
					if !errors.Is(err, failure) || failure == nil && string(v) != "2" {
						t.Errorf("when the commit has ended: got %q and error %v, want 2 or %v", v, err, failure)
					}
				})
				synctest.Wait()
				if failure != nil {
					s.giveUp(failure)
				}
				end()
				wg.Wait()
			})
		})
	}
}

// TestReadsBesideACommit reads while commits are in progress. No read ends with what the present one writes.
func TestReadsBesideACommit(t *testing.T) {
	torture.Slow(t)
	s := openInside(t)
	put := func(i int) {
		if err := s.Commit(t.Context(), batch("a", strconv.AppendInt(nil, int64(i), 10))); err != nil {
			t.Fatal(err)
		}
	}
	put(0)
	var first int // the transaction that put 0; each has the next ID
	if err := s.db.View(func(tx *bbolt.Tx) error { first = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	var beside, early atomic.Int64
	end := reading(t, func() error {
		v, err := s.Get(t.Context(), []byte("a"))
		f := s.flushing.Load() // a later one than that for which Get may have waited
		got, wrong := strconv.Atoi(string(v))
		if err != nil || wrong != nil {
			return errors.Join(err, wrong)
		}
		if f != nil {
			beside.Add(1)
			if first+got >= f.id {
				early.Add(1)
			}
		}
		return nil
	})
	for i := 1; i <= 200 || i <= 1000 && beside.Load() < 100; i++ {
		put(i)
	}
	end()
	if early.Load() > 0 || beside.Load() < 100 {
		t.Errorf("%d of %d reads beside a commit saw what it had not synced; want none of 100 or more", early.Load(), beside.Load())
	}
}

// On a file system without hard links another process creates the store, and writes to it, while this one is about to create it.
// What it has written stays.
func TestFirstOpenersWithoutHardLinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	defer func() { link = os.Link }()
	none := func(string, string) error { return &os.LinkError{Op: "link", Err: syscall.EPERM} }
	link = func(a, b string) error {
		link = none
		other, err := Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(other.Commit(t.Context(), batch("a", nil)), other.Close()); err != nil {
			t.Fatal(err)
		}
		return none(a, b)
	}
	s, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if v, err := s.Get(t.Context(), []byte("a")); v == nil || err != nil {
		t.Errorf("got %q, %v, want what the other process has written", v, err)
	}
}

// Each opening for writing syncs the folder: the process that created the file may have been killed before it did.
func TestOpeningSyncsTheFolder(t *testing.T) {
	failure := errors.New("no sync")
	var synced []string
	before := syncAbove
	defer func() { syncAbove = before }()
	syncAbove = func(path string) error {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("got %v, want the file, whose name is synced", err)
		}
		synced = append(synced, path)
		return errors.Join(before(path), failure)
	}
	dir := t.TempDir()
	path, link := filepath.Join(dir, "store.db"), filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(filepath.Join(dir, "other.db"), link); err != nil { // its target does not exist yet
		t.Fatal(err)
	}
	for _, p := range []string{path, path, link} {
		if _, err := Open(p, nil); !errors.Is(err, failure) {
			t.Errorf("got %v, want the error of the sync", err)
		}
	}
	if want := []string{path, path, link}; !slices.Equal(synced, want) {
		t.Errorf("got %q synced, want %q", synced, want)
	}
	r, err := Open(path, &Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if len(synced) != 3 {
		t.Error("read-only: the folder is synced")
	}
}
