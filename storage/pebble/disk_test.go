package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weft-go/weft/internal/place"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
)

// A tap calls before, before each call that changes something below. If that returns an error, the
// call fails with it.
type tap struct {
	vfs.FS
	before func(what string) error
}

type tapped struct {
	vfs.File
	tap  *tap
	name string
}

func (t *tap) wrap(f vfs.File, err error, name string) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &tapped{f, t, name}, nil
}

func (t *tap) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := t.before("create " + name); err != nil {
		return nil, err
	}
	f, err := t.FS.Create(name, c)
	return t.wrap(f, err, name)
}

func (t *tap) ReuseForWrite(last, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := t.before("reuse " + name); err != nil {
		return nil, err
	}
	f, err := t.FS.ReuseForWrite(last, name, c)
	return t.wrap(f, err, name)
}

func (t *tap) OpenDir(name string) (vfs.File, error) {
	f, err := t.FS.OpenDir(name)
	return t.wrap(f, err, name)
}

func (t *tap) Remove(name string) error {
	if err := t.before("remove " + name); err != nil {
		return err
	}
	return t.FS.Remove(name)
}

func (t *tap) Rename(last, name string) error {
	if err := t.before("rename " + name); err != nil {
		return err
	}
	return t.FS.Rename(last, name)
}

func (t *tap) Link(last, name string) error {
	if err := t.before("link " + name); err != nil {
		return err
	}
	return t.FS.Link(last, name)
}

func (f *tapped) Write(p []byte) (int, error) {
	if err := f.tap.before("write " + f.name); err != nil {
		n, _ := f.File.Write(p[:len(p)/2]) // as a disk that becomes full does
		return n, err
	}
	return f.File.Write(p)
}

func (f *tapped) sync(sync func() error) error {
	if err := f.tap.before("sync " + f.name); err != nil {
		return err
	}
	return sync()
}

func (f *tapped) Sync() error     { return f.sync(f.File.Sync) }
func (f *tapped) SyncData() error { return f.sync(f.File.SyncData) }

// openOn opens a store in memory whose tables are so small that they are flushed every few dozen
// commits.
func openOn(below vfs.FS) (*Store, error) {
	s := &Store{path: "/store", fs: below, options: Options{MemTableSize: 1 << 20}}
	err := s.open()
	return s, err
}

func newMemory() *vfs.MemFS {
	m := vfs.NewCrashableMem()
	if err := m.MkdirAll("/store", 0o700); err != nil {
		panic(err)
	}
	root, err := m.OpenDir("/")
	if err != nil {
		panic(err)
	}
	defer root.Close()
	if err := root.Sync(); err != nil {
		panic(err)
	}
	return m
}

// A growing is a file system that calls grow before each part of a log that is read. It looks
// at the last log only, from the first one on that is written over an earlier one.
type growing struct {
	vfs.FS
	log  atomic.Pointer[string]
	grow func()
}

type grown struct {
	vfs.File
	grow func()
}

func (g *growing) ReuseForWrite(last, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	g.log.Store(&name)
	return g.FS.ReuseForWrite(last, name, c)
}

func (g *growing) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := g.FS.Open(name, o...)
	if log := g.log.Load(); err == nil && log != nil && name == *log {
		f = grown{f, g.grow}
	}
	return f, err
}

func (g grown) Read(p []byte) (int, error) {
	g.grow()
	return g.File.Read(p)
}

// Commits write to the log while a backup copies it. The copy must not have a part that was
// read before a commit and one that was read after it.
func TestBackupOfALogThatGrows(t *testing.T) {
	memory := newMemory()
	below := &growing{FS: memory}
	s, err := openOn(below)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put := func(key string) {
		if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte(key), make([]byte, 20_000))}}); err != nil {
			t.Fatal(err)
		}
	}
	for n := 0; below.log.Load() == nil; n++ {
		put(fmt.Sprint("earlier", n))
	}
	put("before")
	parts := 0 // of 32 KiB; the log ends in the second one
	below.grow = func() {
		if parts++; parts == 3 {
			for n := range 5 {
				put(fmt.Sprint("during", n))
			}
		}
	}
	if err := s.Backup("/backup"); err != nil {
		t.Fatal(err)
	}
	if parts == 0 {
		t.Error("the last log was not read")
	}
	b := &Store{path: "/backup", fs: memory}
	if err := b.open(); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if v, err := b.Get(t.Context(), []byte("before")); err != nil || len(v) != 20_000 {
		t.Errorf("got %d bytes and error %v, want what was acknowledged before the backup", len(v), err)
	}
}

const writers = 4

// A workload is writers, each of which counts with conditional batches, and deletes a range now and
// then.
type workload struct {
	acked [writers]atomic.Int64 // the last that was acknowledged, or that a reader has seen
	tried [writers]atomic.Int64
}

func counter(w int) []byte          { return fmt.Appendf(nil, "counter:%d", w) }
func witness(w int, n int64) []byte { return fmt.Appendf(nil, "witness:%d:%08d", w, n) }
func decimal(n int64) []byte        { return strconv.AppendInt(nil, n, 10) }

var padding = bytes.Repeat([]byte("x"), 16<<10)

// step commits the next number of w.
func (l *workload) step(t *testing.T, s *Store, w int) error {
	last := l.acked[w].Load()
	n := last + 1
	l.tried[w].Store(n)
	b := storage.Batch{Ops: []storage.Op{storage.Put(counter(w), decimal(n)), storage.Put(witness(w, n), padding)}}
	if last == 0 {
		b.If = []storage.Condition{storage.Absent(counter(w))}
	} else {
		b.If = []storage.Condition{storage.Equal(counter(w), decimal(last)), storage.Present(witness(w, last))}
	}
	if n%16 == 0 {
		b.Ops = append(b.Ops, storage.DeleteRange(storage.Range{Start: witness(w, 0), End: witness(w, n-1)}))
	}
	err := s.Commit(t.Context(), b)
	if err == nil {
		l.acked[w].Store(n)
	}
	return err
}

// look reads the number of w. Whoever has seen it must see it after a power loss.
func (l *workload) look(t *testing.T, s *Store, w int) error {
	before := l.acked[w].Load()
	v, err := s.Get(t.Context(), counter(w))
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return err
	}
	if n < before {
		return fmt.Errorf("writer %d: read %d after %d was acknowledged", w, n, before)
	}
	for last := before; last < n && !l.acked[w].CompareAndSwap(last, n); last = l.acked[w].Load() {
	}
	return nil
}

// holds checks that a store has what was acknowledged, and no batch in part.
func holds(t *testing.T, s *Store, acked, tried [writers]int64) error {
	for w := range writers {
		n := int64(0)
		v, err := s.Get(t.Context(), counter(w))
		if err == nil {
			n, err = strconv.ParseInt(string(v), 10, 64)
		} else if errors.Is(err, storage.ErrNotFound) {
			err = nil
		}
		if err != nil || n < acked[w] || n > tried[w] {
			return fmt.Errorf("writer %d: got %d and error %v, want %d to %d", w, n, err, acked[w], tried[w])
		}
		page, err := s.Scan(t.Context(), storage.Prefix(fmt.Appendf(nil, "witness:%d:", w)))
		first := n - n%16 - 1
		if n%16 == 15 || first < 1 {
			first = max(1, first)
		}
		want := int(n - first + 1)
		if n == 0 {
			want = 0
		}
		if err != nil || len(page) != want {
			return fmt.Errorf("writer %d at %d: got %d witnesses and error %v, want %d", w, n, len(page), err, want)
		}
	}
	return nil
}

func (l *workload) counts() (acked, tried [writers]int64) {
	for w := range writers {
		acked[w] = l.acked[w].Load()
	}
	for w := range writers {
		tried[w] = l.tried[w].Load()
	}
	return acked, tried
}

// TestPowerLoss takes an image of the disk before every call that changes it: what was synced, and
// in every other image some of what was not. Nothing may be lost that was acknowledged or read.
func TestPowerLoss(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("WEFT_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("WEFT_SEED=%d", seed)
	images, each := torture.Rounds(20_000, 500, 500), 500
	at := image{disk: newMemory()}
	tables := 0
	for round := range images / each {
		at = playPowerLoss(t, rand.New(rand.NewPCG(seed, uint64(round))), at, each, &tables)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d images, %d tables", images, tables)
	if tables < 3*images/each {
		t.Errorf("got %d tables written in %d images, want more: this proves little", tables, images)
	}
}

// An image is what a power loss may leave of a disk.
type image struct {
	what         string // the call that came next
	disk         *vfs.MemFS
	acked, tried [writers]int64
}

// playPowerLoss opens the store of an image, and takes n images while it is in use. It checks them,
// and returns the last one.
func playPowerLoss(t *testing.T, r *rand.Rand, start image, n int, tables *int) (last image) {
	var mu sync.Mutex
	var images []image
	var load workload
	for w := range writers {
		load.acked[w].Store(start.acked[w])
		load.tried[w].Store(start.tried[w])
	}
	enough := make(chan struct{})
	below := &tap{start.disk, func(what string) error {
		mu.Lock()
		defer mu.Unlock()
		if len(images) == n {
			return nil
		}
		i := image{what: what}
		i.acked, _ = load.counts() // before the image
		cfg := vfs.CrashCloneCfg{}
		if len(images)%2 == 1 {
			cfg = vfs.CrashCloneCfg{UnsyncedDataPercent: 10 + r.IntN(90), RNG: r}
		}
		i.disk = start.disk.CrashClone(cfg)
		_, i.tried = load.counts() // after it
		if strings.HasPrefix(what, "create") && strings.HasSuffix(what, ".sst") {
			*tables++
		}
		if images = append(images, i); len(images) == n {
			close(enough)
		}
		return nil
	}}
	s, err := openOn(below)
	if err != nil {
		t.Fatal(err)
	}
	for w := range writers {
		if err := load.look(t, s, w); err != nil { // what the image has of what was tried
			t.Fatal(err)
		}
		load.tried[w].Store(load.acked[w].Load())
	}
	var wg sync.WaitGroup
	for w := range writers {
		for _, act := range []func() error{
			func() error { return load.step(t, s, w) },
			func() error { return load.look(t, s, w) },
		} {
			wg.Go(func() {
				for {
					select {
					case <-enough:
						return
					default:
					}
					if err := act(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	last = images[n-1]
	last.disk = last.disk.CrashClone(vfs.CrashCloneCfg{})
	for i, x := range images {
		s, err := openOn(x.disk)
		if err != nil {
			t.Errorf("image %d, before %s: %v", i, x.what, err)
			return last
		}
		err = errors.Join(holds(t, s, x.acked, x.tried), s.Close())
		if err != nil {
			t.Errorf("image %d, before %s: %v", i, x.what, err)
			return last
		}
	}
	return last
}

// TestEveryCallToTheDiskMayFail makes each call that changes the disk fail, once or from then on.
// Nothing that was acknowledged is lost, and what is read was acknowledged or tried. After an I/O
// error the store refuses everything; after a full disk it continues.
func TestEveryCallToTheDiskMayFail(t *testing.T) {
	stride := torture.Rounds(1, 17, 41)
	for name, how := range map[string]struct {
		err  error
		once bool
	}{
		"input/output error, once":     {syscall.EIO, true},
		"input/output error":           {syscall.EIO, false},
		"read-only file system":        {syscall.EROFS, false},
		"full, once":                   {syscall.ENOSPC, true},
		"full, and then there is room": {syscall.ENOSPC, false},
	} {
		t.Run(name, func(t *testing.T) {
			failures := 0
			for at := int64(1); ; at += int64(stride) {
				if !playFailure(t, at, how.err, how.once) {
					t.Logf("%d of %d calls failed", failures, at)
					if failures < 100/stride {
						t.Errorf("got %d failures, want more", failures)
					}
					return
				}
				failures++
				if t.Failed() {
					t.Logf("call %d", at)
					return
				}
			}
		})
	}
}

func playFailure(t *testing.T, at int64, failure error, once bool) (failed bool) {
	var calls atomic.Int64
	var room atomic.Bool
	var what atomic.Value
	memory := newMemory()
	below := &tap{memory, func(w string) error {
		n := calls.Add(1)
		if room.Load() || n < at || once && n > at {
			return nil
		}
		if n == at {
			what.Store(w)
		}
		return failure
	}}
	watch := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("hangs after call %d, %v", at, what.Load())) })
	defer watch.Stop()
	wrong := func(format string, args ...any) {
		t.Helper()
		t.Errorf("call %d, %v: %s", at, what.Load(), fmt.Sprintf(format, args...))
	}
	var load workload
	s, err := openOn(below)
	if err == nil {
		var wg sync.WaitGroup
		var errs [writers]error
		for w := range writers {
			wg.Go(func() {
				for n := 0; n < 60 && errs[w] == nil; n++ {
					errs[w] = load.step(t, s, w)
				}
			})
		}
		wg.Wait()
		acked, tried := load.counts()
		isFull := failure == syscall.ENOSPC
		for w, err := range errs {
			if err != nil && !errors.Is(err, failure) {
				wrong("writer %d: got %v, want %v", w, err, failure)
			}
			if err == nil {
				continue
			}
			if _, err := s.Get(t.Context(), counter(w)); isFull == (err != nil && !errors.Is(err, storage.ErrNotFound)) {
				wrong("a read after it: got %v", err)
			}
			if err := s.Commit(t.Context(), storage.Batch{}); !isFull && !errors.Is(err, failure) || isFull == errors.Is(err, storage.ErrFailed) {
				wrong("a commit after it: got %v, want %v, and ErrFailed unless it is full", err, failure)
			}
		}
		if isFull {
			if err := holds(t, s, acked, tried); err != nil {
				wrong("while it is full: %v", err)
			}
			room.Store(true)
			if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("room"), nil)}}); err != nil {
				wrong("there is room again: got %v", err)
			}
			if _, err := s.Get(t.Context(), []byte("room")); err != nil {
				wrong("there is room again: read %v", err)
			}
		}
		if err := s.Close(); err != nil {
			wrong("close: %v", err)
		}
	} else if !errors.Is(err, failure) {
		wrong("open: got %v, want %v", err, failure)
	}
	acked, tried := load.counts()
	again, err := openOn(memory)
	if err != nil {
		wrong("open again: %v", err)
		return true
	}
	if err := errors.Join(holds(t, again, acked, tried), again.Close()); err != nil {
		wrong("opened again: %v", err)
	}
	return calls.Load() >= at
}

// openTapped opens a store in files, and calls before as a tap does.
func openTapped(t *testing.T, before func(what string) error) *Store {
	t.Helper()
	path, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(path, "store")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	files, err := place.Of(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{path: path, fs: &tap{vfs.Default, before}, files: files}
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := putKey(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	return s
}

func putKey(t *testing.T, s *Store, key string) error {
	return s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte(key), []byte("1"))}})
}

func getKey(t *testing.T, s *Store, key string) error {
	_, err := s.Get(t.Context(), []byte(key))
	return err
}

// A folder or a log that is moved while the disk is full is noticed by every call.
func TestMovedWhileTheDiskIsFull(t *testing.T) {
	calls := map[string]func(s *Store) error{
		"Get":    func(s *Store) error { return getKey(t, s, "a") },
		"Scan":   func(s *Store) error { _, err := s.Scan(t.Context(), storage.Range{}); return err },
		"Commit": func(s *Store) error { return putKey(t, s, "c") },
		"Backup": func(s *Store) error { return s.Backup(s.path + ".backup") },
	}
	for what, move := range map[string]func(path string) error{
		"the folder is renamed": func(path string) error { return os.Rename(path, path+".old") },
		"the folder is replaced": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.Mkdir(path, 0o700))
		},
		"the log is deleted": func(path string) error {
			logs, err := filepath.Glob(filepath.Join(path, "*.log"))
			for _, log := range logs {
				err = errors.Join(err, os.Remove(log))
			}
			return err
		},
	} {
		for first := range calls {
			var noRoom atomic.Bool
			s := openTapped(t, func(string) error {
				if noRoom.Load() {
					return syscall.ENOSPC
				}
				return nil
			})
			noRoom.Store(true)
			if err := putKey(t, s, "b"); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("got %v, want ENOSPC", err)
			}
			if err := getKey(t, s, "a"); err != nil {
				t.Fatalf("got %v while the disk is full, want nil", err)
			}
			if err := move(s.path); err != nil {
				t.Fatal(err)
			}
			noRoom.Store(false) // so that only the move keeps anything from being written
			time.Sleep(2 * place.Interval)
			if err := calls[first](s); !errors.Is(err, storage.ErrMoved) {
				t.Errorf("%s, then %s: got %v, want ErrMoved", what, first, err)
			}
			for name, call := range calls {
				if err := call(s); !errors.Is(err, storage.ErrMoved) {
					t.Errorf("%s, and %s was called, then %s: got %v, want ErrMoved", what, first, name, err)
				}
			}
		}
	}
}

// To open the database again may remove the log and fail after that. Nobody has moved it.
func TestNothingHasMovedWhenThereIsNoRoomToOpenAgain(t *testing.T) {
	gone := 0
	for room := int64(0); ; room++ {
		left := atomic.Int64{}
		left.Store(1 << 40)
		var last atomic.Pointer[disk]
		s := openTapped(t, func(string) error {
			if d := last.Load(); d != nil {
				d.check() // as a compaction of the database before does, that has no room
			}
			if left.Add(-1) < 0 {
				return syscall.ENOSPC
			}
			return nil
		})
		before, _ := filepath.Glob(filepath.Join(s.path, "*.log"))
		left.Store(0)
		if err := putKey(t, s, "b"); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v, want ENOSPC", err)
		}
		last.Store(s.db.disk)
		left.Store(room)
		err := putKey(t, s, "c")
		if err == nil {
			t.Logf("%d calls, %d failures after the log was removed", room, gone)
			return
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("room for %d calls: got %v, want ENOSPC", room, err)
		}
		if _, err := os.Stat(before[len(before)-1]); err != nil {
			gone++
		}
		time.Sleep(2 * place.Interval)
		if err := getKey(t, s, "a"); err != nil {
			t.Errorf("room for %d calls: read %v", room, err)
		}
		left.Store(1 << 40)
		if err := putKey(t, s, "c"); err != nil {
			t.Errorf("room for %d calls, and then more: got %v", room, err)
		}
		if err := s.Close(); err != nil || t.Failed() {
			t.Fatal(err)
		}
	}
}

// refusesAll checks that every call returns ErrFailed.
func refusesAll(t *testing.T, s *Store, when string) {
	t.Helper()
	time.Sleep(2 * place.Interval)
	_, scan := s.Scan(t.Context(), storage.Range{})
	for what, err := range map[string]error{"Get": getKey(t, s, "a"), "Scan": scan, "Commit": putKey(t, s, "c"), "Backup": s.Backup(s.path + ".backup")} {
		if !errors.Is(err, storage.ErrFailed) {
			t.Errorf("%s, then %s: got %v, want ErrFailed", when, what, err)
		}
	}
}

// An I/O error is the end of the store also if the disk has become full before.
func TestFailureAfterTheDiskIsFull(t *testing.T) {
	var s *Store
	var armed atomic.Bool
	s = openTapped(t, func(what string) error {
		if armed.Load() && strings.HasPrefix(what, "sync") && strings.HasSuffix(what, ".log") {
			s.db.disk.fail(syscall.ENOSPC) // as of a table that is written meanwhile
			return syscall.EIO
		}
		return nil
	})
	armed.Store(true)
	if err := putKey(t, s, "b"); !errors.Is(err, storage.ErrFailed) {
		t.Errorf("got %v, want ErrFailed", err)
	}
	armed.Store(false)
	refusesAll(t, s, "the sync of the log has failed")
}

// An I/O error of the database before is the end of the store also if it comes while the database is opened again.
func TestFailureOfTheDatabaseBefore(t *testing.T) {
	var s *Store
	var full, armed atomic.Bool
	s = openTapped(t, func(what string) error {
		switch {
		case full.Load():
			return syscall.ENOSPC
		case armed.Swap(false):
			s.db.disk.fail(syscall.EIO) // as of a sync that began before the disk was full
		}
		return nil
	})
	full.Store(true)
	if err := putKey(t, s, "b"); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want ENOSPC", err)
	}
	full.Store(false)
	armed.Store(true)
	if err := putKey(t, s, "c"); !errors.Is(err, storage.ErrFailed) {
		t.Errorf("got %v, want ErrFailed", err)
	}
	refusesAll(t, s, "the database before has failed")
}

// An I/O error is the end of the store also in an attempt to open the database again after a full disk: the next attempt
// would read what the disk may not have.
func TestFailureWhileTheDatabaseIsOpenedAgain(t *testing.T) {
	const never = 1 << 40
	failures := 0
	for at := int64(1); ; at++ {
		var full atomic.Bool
		var left atomic.Int64
		var failed atomic.Value
		left.Store(never)
		s := openTapped(t, func(what string) error {
			switch {
			case full.Load():
				return syscall.ENOSPC
			case strings.Contains(what, "/store") && left.Add(-1) == 0: // pebble syncs the folder above, too, which has nothing new
				failed.Store(what)
				return syscall.EIO
			}
			return nil
		})
		full.Store(true)
		if err := putKey(t, s, "b"); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v, want ENOSPC", err)
		}
		left.Store(at)
		full.Store(false)
		err := putKey(t, s, "c")
		if left.Load() > 0 {
			t.Logf("%d of %d calls failed", failures, at)
			if err != nil || failures < 10 {
				t.Errorf("got %d failures and then %v, want 10 or more and nil", failures, err)
			}
			return
		}
		failures++
		if err == nil {
			continue // a file was removed, or preallocated: nothing depends on that
		}
		if !errors.Is(err, storage.ErrFailed) {
			t.Errorf("call %d, %v: got %v, want ErrFailed", at, failed.Load(), err)
		}
		refusesAll(t, s, fmt.Sprintf("call %d, %v, has failed", at, failed.Load()))
		if t.Failed() {
			return
		}
	}
}

// Pebble replaces the log between two steps of a look, and removes the one before. Nobody has moved it.
func TestLogThatIsReplacedHasNotMoved(t *testing.T) {
	dir := t.TempDir()
	files, err := place.Of(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := newDisk(vfs.Default, dir, files)
	create := func(name string) {
		f, err := d.Create(filepath.Join(dir, name), vfs.WriteCategoryUnspecified)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	create("1.log")
	first, looks := d.log.Load(), 0
	err = d.look(func(f *place.Files) error {
		looks++
		if f == first {
			create("2.log")
			if err := d.Remove(filepath.Join(dir, "1.log")); err != nil {
				t.Fatal(err)
			}
		}
		return f.Check()
	})
	if err != nil || d.failure() != nil {
		t.Errorf("got %v and the failure %v, want neither", err, d.failure())
	}
	if looks < 3 {
		t.Errorf("got %d looks, want one at the second log", looks)
	}
}

// A backup takes long, and the disk becomes full meanwhile. Reads and commits do not wait for the backup, which ends.
func TestFullDiskDuringABackup(t *testing.T) {
	var noRoom atomic.Bool
	var created atomic.Int64
	var once sync.Once
	copying, goOn := make(chan struct{}), make(chan struct{})
	s, err := openOn(&tap{newMemory(), func(what string) error {
		switch {
		case strings.HasPrefix(what, "write /backup"):
			once.Do(func() {
				close(copying)
				<-goOn
			})
		case strings.HasPrefix(what, "create /backup") && noRoom.Load():
			created.Add(1)
		case strings.Contains(what, " /store") && noRoom.Load(): // the backup has a disk of its own
			return syscall.ENOSPC
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := putKey(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	backup := make(chan error)
	go func() { backup <- s.Backup("/backup") }()
	<-copying
	noRoom.Store(true)
	calls := make(chan error)
	go func() {
		calls <- putKey(t, s, "b") // finds that the disk is full
		calls <- putKey(t, s, "c")
	}()
	for range 2 {
		select {
		case err := <-calls:
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("a commit: got %v, want ENOSPC", err)
			}
		case <-time.After(time.Minute):
			t.Error("a commit waits for the backup, and reads wait for the commit")
			close(goOn)
			<-calls
			<-backup
			return
		}
	}
	if err := getKey(t, s, "a"); err != nil {
		t.Errorf("a read: got %v, want nil", err)
	}
	close(goOn)
	if err := <-backup; !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the backup: got %v, want ENOSPC", err)
	}
	if n := created.Load(); n > 0 {
		t.Errorf("the backup has created %d files after the disk was full, want none", n)
	}
	noRoom.Store(false)
	if err := putKey(t, s, "c"); err != nil {
		t.Errorf("a commit when there is room: got %v, want nil", err)
	}
	if err := s.Backup("/backup"); err != nil {
		t.Errorf("a backup when there is room: got %v, want nil", err)
	}
}

// A flush that has no room removes its tables, but not once another database may be opened in the folder, and give its own
// tables the same names.
func TestTablesOfASealedDiskStay(t *testing.T) {
	const table = "/store/000009.sst"
	for sealed, stays := range map[string]bool{"never": false, "write " + table: true} {
		memory := newMemory()
		var d *disk
		d = newDisk(&tap{memory, func(what string) error {
			if what == sealed {
				d.seal()
			}
			if strings.HasPrefix(what, "write") {
				return syscall.ENOSPC
			}
			return nil
		}}, "/store", nil)
		f, err := d.Create(table, "pebble-memtable-flush")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("1")); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("got %v, want ENOSPC", err)
		}
		if _, err := memory.Stat(table); stays != (err == nil) {
			t.Errorf("sealed before %s: got %v, want that the table is there: %t", sealed, err, stays)
		}
	}
}

// A flush that has no room removes its own tables, and none of an earlier flush, which the manifest has by then.
func TestTablesOfTheManifestStay(t *testing.T) {
	const earlier, table, manifest = "/store/000009.sst", "/store/000010.sst", "/store/MANIFEST-000001"
	for _, another := range []bool{false, true} { // written to another manifest, or to the one that there was
		memory := newMemory()
		var full atomic.Bool
		d := newDisk(&tap{memory, func(what string) error {
			if full.Load() && strings.HasPrefix(what, "write") {
				return syscall.ENOSPC
			}
			return nil
		}}, "/store", nil)
		create := func(name string) vfs.File {
			f, err := d.Create(name, "pebble-memtable-flush")
			if err == nil {
				_, err = f.Write([]byte("1"))
			}
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		list := func() { create(manifest) }
		if !another {
			log := create(manifest)
			list = func() {
				if _, err := log.WriteAt([]byte("2"), 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		create(earlier)
		list()
		f := create(table)
		full.Store(true)
		if _, err := f.Write([]byte("1")); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("got %v, want ENOSPC", err)
		}
		_, err := memory.Stat(earlier)
		if _, gone := memory.Stat(table); err != nil || gone == nil {
			t.Errorf("another manifest %t: the earlier table %v, and that of the flush %v", another, err, gone)
		}
	}
}

// No other database may be opened in the folder while a file is created in it that may have the name of one of its own.
func TestNothingIsCreatedInASealedDisk(t *testing.T) {
	const table = "/store/000009.sst"
	memory := newMemory()
	var d *disk
	sealed := make(chan struct{})
	d = newDisk(&tap{memory, func(what string) error {
		if what != "create "+table {
			return nil
		}
		d.fail(syscall.ENOSPC) // of another file
		go func() {
			d.seal()
			close(sealed)
		}()
		select {
		case <-sealed:
			t.Error("the disk is sealed while a table is created")
		case <-time.After(time.Second):
		}
		return nil
	}}, "/store", nil)
	if _, err := d.Create(table, "pebble-memtable-flush"); err != nil {
		t.Fatal(err)
	}
	<-sealed
	if err := memory.Remove(table); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(table, "pebble-memtable-flush"); err != nil {
		t.Fatal(err)
	}
	if _, err := memory.Stat(table); err == nil {
		t.Error("a table was created after the disk was sealed")
	}
}

// A compaction that has no room to write a table is tried again about once a second.
func TestCompactionWithoutRoomWaits(t *testing.T) {
	var tables sync.Map
	var tried atomic.Int64
	s, err := openOn(&compactions{&tap{newMemory(), func(what string) error {
		name, writes := strings.CutPrefix(what, "write ")
		if _, merged := tables.Load(name); writes && merged {
			return syscall.ENOSPC
		}
		return nil
	}}, func(name string) {
		tables.Store(name, true)
		tried.Add(1)
	}})
	if err != nil {
		t.Fatal(err)
	}
	var load workload
	for n := 0; tried.Load() == 0; n++ {
		if n > 2000 {
			t.Fatal("there is no compaction")
		}
		if err := load.step(t, s, n%writers); err != nil {
			t.Fatal(err)
		}
	}
	before, began := tried.Load(), time.Now()
	n, took := int64(0), time.Duration(0)
	for took < 2500*time.Millisecond || n < 1 && took < time.Minute { // on a busy machine the first may be late
		time.Sleep(10 * time.Millisecond)
		n, took = tried.Load()-before, time.Since(began)
	}
	if n < 1 || n > 2+int64(took/time.Second) {
		t.Errorf("got %d tables of compactions in %v, want about one a second", n, took)
	}
	if err := load.step(t, s, 0); err != nil {
		t.Errorf("a commit meanwhile: got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A compactions calls begin with the name of each table that a compaction creates.
type compactions struct {
	vfs.FS
	begin func(name string)
}

func (c *compactions) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if kindOf(name, category) == merged {
		c.begin(name)
	}
	return c.FS.Create(name, category)
}

// A limited is a file system with room for some bytes in the files of /store.
type limited struct {
	vfs.FS
	mu    sync.Mutex
	room  int64        // guarded by mu
	lists atomic.Int64 // how often a folder was listed
}

type limitedFile struct {
	vfs.File
	disk *limited
}

func (l *limited) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := l.FS.Create(name, c)
	return &limitedFile{f, l}, err
}

func (l *limited) List(dir string) ([]string, error) {
	l.lists.Add(1)
	return l.FS.List(dir)
}

func (l *limited) ReuseForWrite(last, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := l.FS.ReuseForWrite(last, name, c)
	return &limitedFile{f, l}, err
}

// used returns how many bytes there are in files with a name that ends so, and how many files.
func (l *limited) used(end string) (bytes int64, files int) {
	names, _ := l.FS.List("/store")
	for _, name := range names {
		if info, err := l.FS.Stat("/store/" + name); err == nil && strings.HasSuffix(name, end) {
			bytes += info.Size()
			files++
		}
	}
	return bytes, files
}

func (l *limited) limit(room int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.room = room
}

func (f *limitedFile) Write(p []byte) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	used, _ := f.disk.used("")
	if left := max(0, f.disk.room-used); left < int64(len(p)) {
		n, _ := f.File.Write(p[:left])
		return n, syscall.ENOSPC
	}
	return f.File.Write(p)
}

// fillLimited opens a store, commits, and leaves no room. What it needs to be opened again is the
// room for a table of what is in the log.
func fillLimited(t *testing.T) (below *limited, s *Store, need int64) {
	t.Helper()
	below = &limited{FS: newMemory(), room: 1 << 40}
	s = &Store{path: "/store", fs: below, options: Options{MemTableSize: 4 << 20}}
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for n := range 300 {
		if n == 200 { // the tables in memory have their full size
			if err := s.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := putRandom(t, s, n); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(200 * time.Millisecond) // a compaction may be in progress
	below.limit(0)
	if err := putRandom(t, s, 300); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want ENOSPC", err)
	}
	return below, s, 100 * 20_000
}

func putRandom(t *testing.T, s *Store, n int) error {
	var seed [32]byte
	seed[0], seed[1] = byte(n), byte(n>>8)
	value := make([]byte, 20_000) // that cannot be compressed
	rand.NewChaCha8(seed).Read(value)
	return s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(fmt.Appendf(nil, "key %d", n), value)}})
}

// A store that has no room to open again leaves no table of the attempt, and so needs no more room
// after many attempts than after one.
func TestAttemptsWithoutRoomLeaveNothing(t *testing.T) {
	below, s, need := fillLimited(t)
	used, _ := below.used("")
	_, before := below.used(".sst")
	for quarter := int64(1); quarter <= 6; quarter++ {
		below.limit(used + quarter*need/4)
		for range 3 {
			err := putKey(t, s, "again")
			if err == nil {
				if quarter < 4 {
					t.Errorf("opened again with %d quarters of the room: this proves little", quarter)
				}
				if err := errors.Join(getKey(t, s, "key 0"), getKey(t, s, "again")); err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("got %v, want ENOSPC", err)
			}
			if _, n := below.used(".sst"); n > before {
				t.Errorf("got %d tables after an attempt with %d quarters, want at most %d", n, quarter, before)
			}
			if err := getKey(t, s, "key 0"); err != nil {
				t.Errorf("a read meanwhile: got %v", err)
			}
		}
	}
	t.Error("got no success with room for one and a half times what is needed")
}

// While there is no room, the database is opened about once a second, whoever commits.
func TestAttemptsWithoutRoomWait(t *testing.T) {
	below, s, _ := fillLimited(t)
	before := below.lists.Load()
	if err := putKey(t, s, "again"); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want ENOSPC", err)
	}
	each := below.lists.Load() - before
	s.pace = time.Second
	before = below.lists.Load()
	var wg sync.WaitGroup
	began := time.Now()
	goesOn := func() bool { // on a busy machine the first attempt may be late
		took := time.Since(began)
		return took < 2500*time.Millisecond || below.lists.Load()-before < each && took < time.Minute
	}
	for range 50 {
		wg.Go(func() {
			for goesOn() {
				if err := putKey(t, s, "again"); !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("got %v, want ENOSPC", err)
				}
				if err := getKey(t, s, "key 0"); err != nil {
					t.Errorf("a read meanwhile: got %v", err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	wg.Wait()
	n, took := (below.lists.Load()-before)/each, time.Since(began)
	if n < 1 || n > 2+int64(took/time.Second) {
		t.Errorf("got %d attempts in %v, want about one a second", n, took)
	}
	below.limit(1 << 40)
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := putKey(t, s, "again")
		if err == nil {
			break
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("got %v when there was room again", err)
		}
	}
}

// TestReadsSeeOnlyWhatIsSynced holds a commit while it is synced.
func TestReadsSeeOnlyWhatIsSynced(t *testing.T) {
	var held atomic.Bool
	reached, goOn := make(chan struct{}), make(chan struct{})
	below := &tap{newMemory(), func(what string) error {
		if held.Load() && strings.HasPrefix(what, "sync") && strings.HasSuffix(what, ".log") {
			held.Store(false)
			close(reached)
			<-goOn
		}
		return nil
	}}
	s, err := openOn(below)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var load workload
	for range 20 {
		if err := load.step(t, s, 0); err != nil {
			t.Fatal(err)
		}
	}
	held.Store(true)
	done := make(chan error)
	go func() { done <- load.step(t, s, 0) }()
	<-reached
	before := func() error { return holds(t, s, [writers]int64{20}, [writers]int64{20}) }
	if err := before(); err != nil {
		t.Errorf("while 21 is synced: %v", err)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := holds(t, s, [writers]int64{21}, [writers]int64{21}); err != nil {
		t.Error(err)
	}
}

// What a reader has seen of the commits of a process that was killed is there after a power loss.
func TestReaderSyncsTheLog(t *testing.T) {
	memory := newMemory()
	var killed atomic.Bool
	s, err := openOn(&tap{memory, func(what string) error {
		if strings.HasPrefix(what, "sync") && killed.Load() {
			return syscall.EIO // what was written before stays there, and no more is
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := putKey(t, s, "a"); err != nil {
		t.Fatal(err)
	}
	killed.Store(true)
	if err := putKey(t, s, "b"); !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v, want EIO", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	reader := &Store{path: "/store", fs: memory, options: Options{ReadOnly: true}}
	if err := reader.open(); err != nil {
		t.Fatal(err)
	}
	if err := getKey(t, reader, "b"); err != nil {
		t.Fatalf("got %v of what was written, want it read: this proves nothing", err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := openOn(memory.CrashClone(vfs.CrashCloneCfg{}))
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	if err := errors.Join(getKey(t, after, "a"), getKey(t, after, "b")); err != nil {
		t.Errorf("after a power loss: got %v of what was read", err)
	}
}

// openInside opens a store in files.
func openInside(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Damage to a table, the log, the manifest or another file is an error, and never ends the process.
func TestDamagedFile(t *testing.T) {
	torture.Damage(t, 500, func(path string) (storage.Storage, error) {
		s, err := Open(path, nil)
		if err != nil {
			return nil, err
		}
		return s, nil
	}, func(path string) {
		s := openInside(t, path)
		torture.Fill(t, s)
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
		torture.Fill(t, s)
		s.Close()
	})
}

// Damage in the middle of the log is an error. A torn end, as a power loss leaves it, is not.
func TestDamagedLog(t *testing.T) {
	for name, c := range map[string]struct {
		damage  func(log []byte, size int) []byte
		corrupt bool
	}{
		"a bit in the middle": {func(log []byte, size int) []byte { log[size/2] ^= 4; return log }, true},
		"zeros in the middle": {func(log []byte, size int) []byte { clear(log[size/2 : size/2+512]); return log }, true},
		"a torn end":          {func(log []byte, size int) []byte { return log[:size-100] }, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store")
			s := openInside(t, path)
			for i := range 100 {
				if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(fmt.Appendf(nil, "key %03d", i), bytes.Repeat([]byte("v"), 300))}}); err != nil {
					t.Fatal(err)
				}
			}
			logs, err := filepath.Glob(filepath.Join(path, "*.log"))
			if err != nil || len(logs) != 1 {
				t.Fatalf("got the logs %v and error %v, want one", logs, err)
			}
			log, err := os.ReadFile(logs[0]) // as after a kill
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(logs[0], c.damage(log, len(bytes.TrimRight(log, "\x00"))), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err = Open(path, nil)
			if !c.corrupt {
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if _, err := s.Get(t.Context(), []byte("key 098")); err != nil {
					t.Errorf("the commit before the last: got %v", err)
				}
				return
			}
			if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want ErrCorrupt and the path", err)
			}
		})
	}
}

// The file with the last commits is removed, and nothing else.
func TestLogThatMoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	s := openInside(t, path)
	put := storage.Batch{Ops: []storage.Op{storage.Put([]byte("a"), nil)}}
	if err := s.Commit(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	logs, _ := filepath.Glob(filepath.Join(path, "*.log"))
	for _, log := range logs {
		if err := os.Remove(log); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Commit(t.Context(), put); !errors.Is(err, storage.ErrMoved) {
		t.Errorf("got %v, want ErrMoved", err)
	}
	if _, err := s.Get(t.Context(), []byte("a")); !errors.Is(err, storage.ErrMoved) {
		t.Errorf("read: got %v, want ErrMoved", err)
	}
}

// A folder of a newer format is refused before anything in it is changed.
func TestNewerFormat(t *testing.T) {
	for _, newer := range []string{fmt.Sprintf("%03d", format+1), "999"} {
		path := filepath.Join(t.TempDir(), "store")
		s := openInside(t, path)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		markers, _ := filepath.Glob(filepath.Join(path, "marker.format-version.*"))
		if len(markers) != 1 {
			t.Fatalf("got the markers %v, want one", markers)
		}
		if err := os.Rename(markers[0], strings.TrimSuffix(markers[0], filepath.Ext(markers[0]))+"."+newer); err != nil {
			t.Fatal(err)
		}
		before := list(t, path)
		if _, err := Open(path, nil); !errors.Is(err, storage.ErrFutureFormat) {
			t.Errorf("format %s: got %v, want ErrFutureFormat", newer, err)
		}
		if after := list(t, path); after != before {
			t.Errorf("format %s: got the files\n%s\nwant\n%s", newer, after, before)
		}
	}
}

func list(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	if err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintln(&all, name, info.Size())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// Without one of its marks, a store must not look like an empty one.
func TestMissingMark(t *testing.T) {
	for _, mark := range []string{"marker.format-version.*", "marker.manifest.*", "MANIFEST-*", "*.sst"} {
		path := filepath.Join(t.TempDir(), "store")
		s := openInside(t, path)
		torture.Fill(t, s)
		if err := errors.Join(s.db.Flush(), s.Close()); err != nil {
			t.Fatal(err)
		}
		names, _ := filepath.Glob(filepath.Join(path, mark))
		if len(names) == 0 {
			t.Fatalf("no %s", mark)
		}
		for _, name := range names {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		if s, err := Open(path, nil); !errors.Is(err, storage.ErrCorrupt) {
			s.Close()
			t.Errorf("without %s: got %v, want ErrCorrupt", mark, err)
		}
	}
}

// A condition sees the batches before it in its group, also on a key that is too long to be
// remembered. It does not see those that were refused.
func TestConditionsOfAGroup(t *testing.T) {
	s, err := openOn(newMemory())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	long := bytes.Repeat([]byte("k"), 1000)
	one := []storage.Op{storage.Put(long, []byte("1"))}
	batches := []storage.Batch{
		{If: []storage.Condition{storage.Absent(long)}, Ops: one},
		{If: []storage.Condition{storage.Absent(long)}, Ops: []storage.Op{storage.Put(long, []byte("refused"))}},
		{If: []storage.Condition{storage.Equal(long, []byte("1"))}, Ops: []storage.Op{storage.Put(long, []byte("2"))}},
		{If: []storage.Condition{storage.Equal(long, []byte("2"))}, Ops: []storage.Op{storage.Delete(long)}},
		{If: []storage.Condition{storage.Present(long)}, Ops: one},
		{If: []storage.Condition{storage.Absent(long)}, Ops: []storage.Op{storage.Put(long, []byte("3"))}},
	}
	verdicts := make([]error, len(batches))
	if err := s.apply(batches, verdicts); err != nil {
		t.Fatal(err)
	}
	for i, refused := range []bool{false, true, false, false, true, false} {
		if errors.Is(verdicts[i], storage.ErrConflict) != refused {
			t.Errorf("batch %d: got %v, refused is %v", i, verdicts[i], refused)
		}
	}
	if v, err := s.Get(t.Context(), long); err != nil || string(v) != "3" {
		t.Errorf("got %q and error %v, want 3", v, err)
	}
}

// A power loss while a store is created leaves one that opens, whatever the disk had of what was not
// synced.
func TestPowerLossWhileItIsCreated(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("WEFT_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("WEFT_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	each := torture.Rounds(50, 10, 5)
	var mu sync.Mutex
	var images []image
	memory := newMemory()
	s, err := openOn(&tap{memory, func(what string) error {
		mu.Lock()
		defer mu.Unlock()
		for range each {
			images = append(images, image{what: what, disk: memory.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: r})})
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i, x := range images {
		s, err := openOn(x.disk)
		if err != nil {
			t.Fatalf("image %d of %d, before %s: %v", i, len(images), x.what, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d images", len(images))
}

// Each opening for writing syncs the folder above: the process that created the folder may have been killed before it did.
func TestOpeningSyncsTheFolderAbove(t *testing.T) {
	memory := newMemory()
	for range 2 {
		var synced atomic.Bool
		s, err := openOn(&tap{memory, func(what string) error {
			if what == "sync /" {
				synced.Store(true)
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if !synced.Load() {
			t.Error("the folder above is not synced")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
