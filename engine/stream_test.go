package engine_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/storage/storagetest"
	"github.com/weft-go/weft/stream"
)

var words = &stream.Stream[string]{Name: "words"}

// streaming is an activity that writes to words what f tells it.
func streaming(name string, f func(ctx context.Context, w *stream.Writer[string]) error) *activity.Activity[string, int] {
	return &activity.Activity[string, int]{Name: name, Run: func(ctx context.Context, _ string) (int, error) {
		return 1, f(ctx, words.Writer(ctx))
	}}
}

// speak writes words, one each pause.
func speak(ctx context.Context, w *stream.Writer[string], pause time.Duration, all ...string) error {
	for _, word := range all {
		if err := w.Write(word); err != nil {
			return err
		}
		if err := sleep(ctx, pause); pause > 0 && err != nil {
			return err
		}
	}
	return nil
}

// chunksOf reads a stream to its end, and checks that each chunk comes once and in order.
func chunksOf(t testing.TB, s *stream.Stream[string], from stream.Source, id string, at int64) (data []string) {
	t.Helper()
	data, err := chunksIn(t, s.Read(ctx, from, id, at), at)
	if err != nil {
		t.Fatalf("stream of %q: %v", id, err)
	}
	return data
}

func chunksIn(t testing.TB, chunks iter.Seq2[stream.Chunk[string], error], at int64) (data []string, _ error) {
	t.Helper()
	ids := map[string]bool{}
	for c, err := range chunks {
		if err != nil {
			return data, err
		}
		if at < 0 {
			at = c.Index
		}
		if c.Index != at+int64(len(data)) || ids[c.ID] || !strings.HasPrefix(c.ID, "chnk_") || c.Time.IsZero() {
			t.Fatalf("chunk %+v behind %q", c, data)
		}
		ids[c.ID] = true
		data = append(data, c.Data)
	}
	return data, nil
}

// WLD-70: what an attempt writes is read while it works and afterwards, by this engine and by another one, from any place,
// each chunk once. The end of the run ends the stream, and a purge removes it.
func TestStream(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			return speak(ctx, w, 100*time.Millisecond, "a", "b", "c", "d")
		})
		wf := flow("wf", func(run *engine.Run) (string, error) {
			_, err := ask.Do(run, "in")
			return "done", err
		})
		p := boot(t, s, wf)
		other := made(t, s, wf)
		defer other.Close()
		h := start(t, wf, p, "o", "")
		live := make(chan []string, 3)
		for _, e := range []stream.Source{p, p, other} {
			go func() { live <- chunksOf(t, words, e, "o", 0) }()
		}
		if got := result(t, h); got != "done" {
			t.Fatalf("result %q", got)
		}
		for range 3 {
			if got := <-live; !slices.Equal(got, []string{"a", "b", "c", "d"}) {
				t.Errorf("live: %q", got)
			}
		}
		for at, want := range map[int64]string{0: "abcd", 2: "cd", 4: "", 9: "", -1: "d", -3: "bcd", -9: "abcd"} {
			if got := strings.Join(chunksOf(t, words, p, "o", at), ""); got != want {
				t.Errorf("from %d: %q, want %q", at, got, want)
			}
		}
		for c, err := range words.Read(ctx, p, "o", 0) {
			if err != nil || c.Operation != "1" || c.Attempt != 1 {
				t.Errorf("chunk %+v, %v", c, err)
			}
		}
		if got := chunksOf(t, &stream.Stream[string]{Name: "none"}, p, "o", 0); len(got) > 0 {
			t.Errorf("a stream that nobody wrote to: %q", got)
		}
		intact(t, s)
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if left := slices.Concat(entries(t, s, "stream:"), entries(t, s, "chunk:")); len(left) > 0 {
			t.Errorf("purged, and there is %q", left)
		}
		if _, err := chunksIn(t, words.Read(ctx, p, "o", 0), 0); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("read what was purged: %v", err)
		}
		p.stop(t)
	})
}

// WLD-67, WLD-68, WLD-71: a workflow closes a stream: what was written before is in it, later writes are refused, and who reads comes to the end
// while the run goes on.
func TestCloseAStream(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		var late error
		var closed atomic.Int64
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error { return w.Write("a") })
		more := streaming("more", func(ctx context.Context, w *stream.Writer[string]) error {
			if late = w.Write("b"); late == nil {
				late = w.Flush()
			}
			return activity.Permanent(late)
		})
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if _, err := ask.Do(run, "in"); err != nil {
				return "", err
			}
			for range 2 {
				if err := words.Close(run); err != nil {
					return "", err
				}
				closed.CompareAndSwap(0, time.Now().UnixNano())
			}
			if err := (&stream.Stream[int]{Name: "never written"}).Close(run); err != nil {
				return "", err
			}
			_, err := more.Do(run, "in")
			if err == nil {
				return "done", run.Sleep(time.Minute)
			}
			return fmt.Sprint(err), run.Sleep(time.Minute)
		})
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		if got := chunksOf(t, words, p, "o", 0); !slices.Equal(got, []string{"a"}) {
			t.Errorf("read %q", got)
		}
		ended := time.Now()
		synctest.Wait()
		if took := ended.Sub(time.Unix(0, closed.Load())); took > 0 {
			t.Errorf("the reader came to the end %v after the close", took)
		}
		if got := chunksOf(t, &stream.Stream[string]{Name: "never written"}, p, "o", 0); len(got) > 0 {
			t.Errorf("read %q", got)
		}
		if got := result(t, h); !strings.Contains(got, stream.ErrClosed.Error()) || !errors.Is(late, stream.ErrClosed) {
			t.Errorf("written after the close: %v, and the attempt: %q", late, got)
		}
		n := 0
		for _, k := range kinds(historyOf(t, p.Engine, "o")) {
			if k == checkpoint.KindClosed {
				n++
			}
		}
		if n != 3 {
			t.Errorf("%d events say that a stream is closed, want 3", n)
		}
		intact(t, s)
		p.stop(t)
	})
}

// An append carries the fence. Who writes under a record that somebody else has changed looks whether the run is
// still his. If so, the chunk is stored under the new record. If not, nothing is, the writer is told, and the attempt
// is told to stop.
func TestStreamIsFenced(t *testing.T) {
	for name, c := range map[string]struct {
		change func(wf *journal.Workflow)
		fenced bool
	}{
		"a request":     {func(wf *journal.Workflow) { wf.State++ }, false},
		"another owner": {func(wf *journal.Workflow) { wf.Owner = "somebody" }, true},
		"another claim": {func(wf *journal.Workflow) { wf.Claim++ }, true},
		"another life":  {func(wf *journal.Workflow) { wf.Generation = "ANOTHER" }, true},
		"the end":       {func(wf *journal.Workflow) { wf.Status = checkpoint.StatusFailed }, true},
	} {
		virtual(t, func(t *testing.T) {
			s := fresh(t)
			told := make(chan [2]error, 1)
			ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
				if err := errors.Join(w.Write("a"), w.Flush()); err != nil {
					return err
				}
				time.Sleep(20 * time.Second)
				err := errors.Join(w.Write("b"), w.Flush())
				told <- [2]error{err, context.Cause(ctx)}
				return err
			})
			wf := doing(ask)
			p := boot(t, s, wf)
			start(t, wf, p, "o", "")
			time.Sleep(10 * time.Second)
			record, changed := rewrite(t, s, "o", c.change)
			was := <-told
			lost := activity.ErrLeaseLost
			if changed.Status.Terminal() || changed.Generation != record.Generation {
				lost = activity.ErrTerminated
			}
			chunks := entries(t, s, "chunk:")
			switch {
			case !c.fenced && (was[0] != nil || len(chunks) != 2):
				t.Errorf("%s: %v, and %d chunks, want two", name, was, len(chunks))
			case c.fenced && !strings.Contains(fmt.Sprint(was[0]), `stream "words" of workflow "o": stream: the attempt may not write any more`):
				t.Errorf("%s: told %v, which does not name the stream and the run", name, was[0])
			case c.fenced && (!errors.Is(was[0], stream.ErrStale) || !errors.Is(was[1], lost) || len(chunks) != 1):
				t.Errorf("%s: told %v, and %d chunks; want ErrStale, %v and one", name, was, len(chunks), lost)
			}
		})
	}
}

// The owner of a run hears nothing from the store for more than two leases, and another engine takes the run over. No chunk
// of the first one is stored after that, although its attempt goes on. The next attempt writes, and the run ends.
func TestStoppedOwnerWritesNoChunks(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		var stopped atomic.Bool
		f := storagetest.NewFaulty(s, func(storagetest.Call) storagetest.Fault {
			if stopped.Load() {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		told := make(chan error, 1)
		var mine atomic.Bool
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			if mine.CompareAndSwap(false, true) {
				err := errors.Join(w.Write("first"), w.Flush())
				time.Sleep(25 * time.Second) // whatever ctx says
				told <- errors.Join(w.Write("late"), w.Flush())
				return err
			}
			return w.Write("second")
		})
		wf := doing(ask)
		p := bootOn(t, f, wf, leases)
		start(t, wf, p, "o", "")
		time.Sleep(5 * time.Second)
		stopped.Store(true)
		other := boot(t, s, wf, leases)
		time.Sleep(12 * time.Second)
		stopped.Store(false)
		if err := <-told; !errors.Is(err, stream.ErrStale) {
			t.Errorf("the first owner is told %v", err)
		}
		if got := chunksOf(t, words, other, "o", 0); !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("read %q", got)
		}
		intact(t, s)
		other.stop(t)
	})
}

// An attempt dies after its last chunk. Its chunks stay, and those of the next attempt follow.
func TestAttemptThatDiesAfterItsLastChunk(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer func() { s.Close() }()
		var attempts atomic.Int64
		dies := make(chan bool)
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			err := errors.Join(w.Write("a"), w.Write("b"), w.Flush())
			if attempts.Add(1) == 1 {
				close(dies)
				<-ctx.Done()
			}
			return err
		})
		wf := doing(ask)
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		<-dies
		p.kill()
		if store.Reopen != nil {
			s = store.Reopen(t, s)
		}
		p = boot(t, s, wf)
		var got []string
		for c, err := range words.Read(ctx, p, "o", 0) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(c.Data, c.Attempt))
		}
		if want := []string{"a1", "b1", "a2", "b2"}; !slices.Equal(got, want) {
			t.Errorf("read %q, want %q", got, want)
		}
		intact(t, s)
		p.stop(t)
	})
}

// appends tells what was committed of chunks: how many in each commit.
func appends(b storage.Batch) (chunks, bytes int) {
	for _, o := range b.Ops {
		if o.Kind == storage.PutOp && strings.HasPrefix(string(o.Key), "chunk:") {
			chunks++
			bytes += len(o.Value)
		}
	}
	return chunks, bytes
}

// Attempts of a run share commits, and no commit has more than a thousand chunks or a MiB.
func TestWritersShareCommits(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var mu sync.Mutex
		var commits []int
		most := 0
		f := storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
			if n, bytes := appends(c.Batch); n > 0 {
				mu.Lock()
				defer mu.Unlock()
				commits = append(commits, n)
				most = max(most, bytes)
			}
			return storagetest.None
		})
		const writers, each = 8, 400
		word := strings.Repeat("w", 10)
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			for i := range each {
				if i == each-1 {
					word := strings.Repeat("l", 300<<10)
					if err := w.Write(word); err != nil {
						return err
					}
					continue
				}
				if err := w.Write(word); err != nil {
					return err
				}
			}
			return nil
		})
		wf := flow("wf", func(run *engine.Run) (string, error) {
			var all []*future.Future[int]
			for range writers {
				all = append(all, ask.Go(run, "in"))
			}
			for _, a := range all {
				if _, err := a.Get(run); err != nil {
					return "", err
				}
			}
			return "", nil
		})
		p := bootOn(t, f, wf)
		result(t, start(t, wf, p, "o", ""))
		if got := len(chunksOf(t, words, p, "o", 0)); got != writers*each {
			t.Errorf("%d chunks, want %d", got, writers*each)
		}
		if n := len(commits); n > 40 || slices.Max(commits) > 1000 || most > 1<<20+1000*100 {
			t.Errorf("%d commits of %v chunks, at most %d bytes", n, commits, most)
		}
		p.stop(t)
	})
}

// A chunk waits for others, for ten milliseconds; 64 KiB do not wait, and neither does a Flush.
func TestChunksWaitForOthers(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		there := func() int { return len(entries(t, s, "chunk:")) }
		look := func(want string, after time.Duration, n int) {
			time.Sleep(after)
			synctest.Wait()
			if got := there(); got != n {
				t.Errorf("%s: %d chunks, want %d", want, got, n)
			}
		}
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			if err := w.Write("a"); err != nil {
				return err
			}
			look("at once", 0, 0)
			look("after 9 ms", 9*time.Millisecond, 0)
			if err := w.Write("b"); err != nil {
				return err
			}
			look("after 11 ms", 2*time.Millisecond, 2)
			if err := w.Write(strings.Repeat("c", 64<<10)); err != nil {
				return err
			}
			look("64 KiB", 0, 3)
			if err := errors.Join(w.Write("d"), w.Flush()); err != nil {
				return err
			}
			look("flushed", 0, 4)
			return w.Write("e")
		})
		wf := doing(ask)
		p := boot(t, s, wf)
		result(t, start(t, wf, p, "o", ""))
		look("returned", 0, 5)
		p.stop(t)
	})
}

// While the store takes nothing, Write waits as soon as a MiB is not stored. The attempt ends with its timeout, and not with
// success: what it has written is not stored.
func TestWriteWaitsForTheStore(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var down atomic.Bool
		f := storagetest.NewFaulty(fresh(t), func(c storagetest.Call) storagetest.Fault {
			if n, _ := appends(c.Batch); n > 0 && down.Load() {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		down.Store(true)
		written := 0
		var waited error
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			for range 100 {
				if waited = w.Write(strings.Repeat("w", 100<<10)); waited != nil {
					break
				}
				written++
			}
			return nil
		})
		ask.Timeout, ask.Retry.MaxAttempts = time.Minute, 1
		quick := streaming("quick", func(ctx context.Context, w *stream.Writer[string]) error { return w.Write("a") })
		quick.Timeout, quick.Retry.MaxAttempts = time.Minute, 1
		wf := flow("wf", func(run *engine.Run) (string, error) {
			_, err := ask.Do(run, "in")
			if !errors.Is(err, activity.ErrTimeout) {
				return "", fmt.Errorf("the first: %w", err)
			}
			if _, err = quick.Do(run, "in"); !errors.Is(err, activity.ErrTimeout) {
				return "", fmt.Errorf("the second, which wrote little: %w", err)
			}
			return "", nil
		})
		p := bootOn(t, f, wf)
		h := start(t, wf, p, "o", "")
		result(t, h)
		if written < 9 || written > 10 || !errors.Is(waited, activity.ErrTimeout) {
			t.Errorf("%d chunks of 100 KiB were taken, and then: %v", written, waited)
		}
		p.kill()
	})
}

// The success of an attempt is recorded after its chunks are stored, and each of them is stored once,
// although every first commit of chunks has an unknown outcome.
func TestChunksAreStoredBeforeTheResult(t *testing.T) {
	for _, fault := range []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter} {
		onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
			s := store.Open(t)
			defer s.Close()
			var mu sync.Mutex
			seen := map[string]int{}
			unknown := 0
			f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
				if n, _ := appends(c.Batch); n > 0 {
					mu.Lock()
					defer mu.Unlock()
					first := string(c.Batch.Ops[0].Key)
					if seen[first]++; seen[first] == 1 {
						unknown++
						return fault
					}
				}
				return storagetest.None
			})
			ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
				return speak(ctx, w, 20*time.Millisecond, "a", "b", "c")
			})
			var before int
			wf := flow("wf", func(run *engine.Run) (string, error) {
				_, err := ask.Do(run, "in")
				before = len(entries(t, s, "chunk:"))
				return "", err
			})
			p := bootOn(t, f, wf)
			result(t, start(t, wf, p, "o", ""))
			if got := chunksOf(t, words, p, "o", 0); !slices.Equal(got, []string{"a", "b", "c"}) || before != 3 || unknown < 3 {
				t.Errorf("read %q; %d were stored before the result, and %d commits were unknown", got, before, unknown)
			}
			intact(t, s)
			p.stop(t)
		})
	}
}

// A stream goes on when its run continues as new, is retried or is reset. A reset opens what was closed behind its
// point, and nothing else. Attempts of a former life may not write.
func TestStreamsOverLives(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		early := &stream.Stream[string]{Name: "early"}
		late := make(chan error, 1)
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			time.Sleep(time.Second) // so that what a reset leaves can be seen before the run goes on
			return w.Write("w")
		})
		lingers := streaming("lingers", func(ctx context.Context, w *stream.Writer[string]) error {
			err := w.Write("l")
			time.Sleep(5 * time.Second)
			late <- errors.Join(w.Write("late"), w.Flush())
			return err
		})
		fail := true
		wf := &engine.Workflow[int, string]{Name: "wf", Func: func(run *engine.Run, life int) (string, error) {
			if _, err := ask.Do(run, "in"); err != nil {
				return "", err
			}
			if life == 0 {
				lingers.Go(run, "in")
				if err := errors.Join(early.Close(run), run.Sleep(time.Second)); err != nil {
					return "", err
				}
				return "", engine.ContinueAsNew(run, 1)
			}
			if err := early.Close(run); err != nil { // it is closed
				return "", err
			}
			if err := words.Close(run); err != nil {
				return "", err
			}
			if _, err := engine.Step(run, "fails", func(context.Context) (int, error) {
				if fail {
					return 0, errBroke
				}
				return 0, nil
			}); err != nil {
				return "", err
			}
			return "done", nil
		}}
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", 0)
		if _, err := outcome(h); err == nil {
			t.Fatal("it did not fail")
		}
		if err := <-late; !errors.Is(err, stream.ErrStale) {
			t.Errorf("an attempt of the former life is told %v", err)
		}
		if got := chunksOf(t, words, p, "o", 0); !slices.Equal(got, []string{"w", "l", "w"}) {
			t.Errorf("over two lives: %q", got)
		}
		closed := func(name string) string { return head(t, s, "o", name).Closed }
		if closed("words") == "" || closed("early") == "" {
			t.Errorf("closed by %q and %q", closed("words"), closed("early"))
		}
		first := closed("early")
		fail = false
		if err := p.Resume(ctx, "o", audit); err != nil {
			t.Fatal(err)
		}
		if got := result(t, h); got != "done" || closed("words") == "" {
			t.Errorf("resumed: %q, closed by %q", got, closed("words"))
		}
		point := ""
		for _, c := range historyOf(t, p.Engine, "o") {
			for _, e := range c.Events {
				if e.Kind == checkpoint.KindSettled && e.Name == "ask" {
					point = e.Operation
				}
			}
		}
		fail = true
		if err := p.Reset(ctx, "o", point, audit); err != nil {
			t.Fatal(err)
		}
		if closed("words") != "" || closed("early") != first {
			t.Errorf("reset: closed by %q and %q, want only %q", closed("words"), closed("early"), first)
		}
		if _, err := outcome(h); err == nil {
			t.Error("it did not fail again")
		}
		if got := chunksOf(t, words, p, "o", 0); !slices.Equal(got, []string{"w", "l", "w", "w"}) {
			t.Errorf("after a reset: %q", got)
		}
		intact(t, s)
		p.stop(t)
	})
}

// head reads the head of a stream.
func head(t testing.TB, s storage.Storage, id, name string) *chunks.Head {
	t.Helper()
	wf, err := journal.Load(ctx, s, id)
	if err != nil {
		t.Fatal(err)
	}
	h, err := chunks.Of(id, name, wf.Generation).Read(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The workflow closes a stream to which others write all the time, at the first try: appends wait for it.
func TestCloseOfABusyStream(t *testing.T) {
	virtual(t, func(t *testing.T) {
		refused := 0
		var mu sync.Mutex
		f := storagetest.NewFaulty(fresh(t), nil)
		c := &watched{Storage: f, before: func(b storage.Batch) {
			if chunks, _ := appends(b); chunks == 0 {
				time.Sleep(time.Millisecond) // a checkpoint takes longer than an append
			}
		}, on: func(b storage.Batch, err error) {
			if chunks, _ := appends(b); chunks == 0 && errors.Is(err, storage.ErrConflict) {
				mu.Lock()
				refused++
				mu.Unlock()
			}
		}}
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			for {
				if err := w.Write("w"); err != nil {
					return activity.Permanent(err)
				}
				if err := w.Flush(); err != nil {
					return activity.Permanent(err)
				}
				time.Sleep(time.Microsecond)
			}
		})
		wf := flow("wf", func(run *engine.Run) (string, error) {
			var all []*future.Future[int]
			for range 4 {
				all = append(all, ask.Go(run, "in"))
			}
			err := errors.Join(run.Sleep(time.Millisecond), words.Close(run))
			for _, a := range all {
				if _, e := a.Get(run); e == nil || !strings.Contains(e.Error(), stream.ErrClosed.Error()) {
					err = errors.Join(err, fmt.Errorf("a writer got %v", e))
				}
			}
			return "", err
		})
		p := boot(t, c, wf)
		result(t, start(t, wf, p, "o", ""))
		if n := len(chunksOf(t, words, p, "o", 0)); n < 10 || refused > 1 {
			t.Errorf("%d chunks, and %d checkpoints were refused", n, refused)
		}
		p.stop(t)
	})
}

// So it is if two branches close the stream, and the driver reads it for each of them.
func TestTwoClosesOfABusyStream(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var refused atomic.Int64
		c := &watched{Storage: &slowlyRead{fresh(t), "stream:"}, on: func(b storage.Batch, err error) {
			if chunks, _ := appends(b); chunks == 0 && errors.Is(err, storage.ErrConflict) {
				refused.Add(1)
			}
		}}
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			for {
				if err := errors.Join(w.Write("w"), w.Flush()); err != nil {
					return activity.Permanent(err)
				}
				time.Sleep(100 * time.Microsecond)
			}
		})
		wf := flow("wf", func(run *engine.Run) (string, error) {
			a := ask.Go(run, "in")
			var closes []*future.Future[int]
			err := run.Sleep(time.Millisecond)
			for range 2 {
				closes = append(closes, engine.Go(run, "closes", func(run *engine.Run) (int, error) { return 0, words.Close(run) }))
			}
			for _, c := range closes {
				_, e := c.Get(run)
				err = errors.Join(err, e)
			}
			if _, e := a.Get(run); e == nil || !strings.Contains(e.Error(), stream.ErrClosed.Error()) {
				err = errors.Join(err, fmt.Errorf("the writer got %v", e))
			}
			return "", err
		})
		p := boot(t, c, wf)
		result(t, start(t, wf, p, "o", ""))
		if n := refused.Load(); n > 1 {
			t.Errorf("%d checkpoints were refused", n)
		}
		p.stop(t)
	})
}

// A slowlyRead store takes a millisecond to read what begins with a prefix.
type slowlyRead struct {
	storage.Storage
	prefix string
}

func (s *slowlyRead) Unwrap() storage.Storage { return s.Storage }

func (s *slowlyRead) Get(ctx context.Context, key []byte) ([]byte, error) {
	v, err := s.Storage.Get(ctx, key)
	if strings.HasPrefix(string(key), s.prefix) {
		time.Sleep(time.Millisecond)
	}
	return v, err
}

// While a stream is being closed, nothing is appended to it: what is written meanwhile waits for the close, and is refused. So the
// checkpoint that closes it is not refused, however long it takes.
func TestCloseHoldsAppendsBack(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var closing atomic.Bool
		var meanwhile, appended, refused atomic.Int64
		closes := func(b storage.Batch) bool {
			n, _ := appends(b)
			return n == 0 && touches(b, "stream:")
		}
		c := &watched{Storage: fresh(t), before: func(b storage.Batch) {
			if closes(b) {
				closing.Store(true)
				time.Sleep(time.Second)
			}
		}, on: func(b storage.Batch, err error) {
			switch n, _ := appends(b); {
			case n > 0 && closing.Load():
				appended.Add(1)
			case closes(b) && err != nil:
				refused.Add(1)
			}
		}}
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			for {
				if err := w.Write("w"); err != nil {
					return activity.Permanent(err)
				}
				if closing.Load() {
					meanwhile.Add(1)
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
		wf := flow("wf", func(run *engine.Run) (string, error) {
			a := ask.Go(run, "in")
			if err := errors.Join(run.Sleep(time.Second), words.Close(run)); err != nil {
				return "", err
			}
			if _, err := a.Get(run); err == nil || !strings.Contains(err.Error(), stream.ErrClosed.Error()) {
				return "", fmt.Errorf("the writer got %v", err)
			}
			return "", nil
		})
		p := boot(t, c, wf)
		result(t, start(t, wf, p, "o", ""))
		if meanwhile.Load() < 10 || appended.Load() > 0 || refused.Load() > 0 {
			t.Errorf("during a close, %d chunks were written and %d commits added some; %d closes were refused", meanwhile.Load(), appended.Load(), refused.Load())
		}
		p.stop(t)
	})
}

// On a store whose batches are small, so are those of streams: no commit is larger than the store takes, and none of many
// chunks fails.
func TestStreamsInSmallBatches(t *testing.T) {
	for _, c := range []struct {
		name   string
		max    storage.Size
		chunk  int // bytes
		chunks int
	}{
		{"few operations", storage.Size{Ops: 100, Bytes: 8 << 20}, 10, 300},
		{"few bytes", storage.Size{Ops: 10_000, Bytes: 1 << 20}, 100 << 10, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var commits, most, largest atomic.Int64
				h := &hooked{Storage: fresh(t), max: c.max, beforeCommit: func(b storage.Batch) {
					if n, bytes := appends(b); n > 0 {
						if commits.Add(1) == 1 {
							time.Sleep(time.Second) // until the activity has written as much as may be unsaved
						}
						most.Store(max(most.Load(), int64(n)))
						largest.Store(max(largest.Load(), int64(bytes)))
					}
				}}
				ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
					for range c.chunks {
						if err := w.Write(strings.Repeat("w", c.chunk)); err != nil {
							return err
						}
					}
					return nil
				})
				ask.Retry.MaxAttempts = 1
				wf := flow("wf", func(run *engine.Run) (string, error) {
					_, err := ask.Do(run, "in")
					return "", err
				})
				p := boot(t, h, wf)
				result(t, start(t, wf, p, "o", ""))
				if got := len(chunksOf(t, words, p, "o", 0)); got != c.chunks || most.Load() < 5 {
					t.Errorf("%d chunks, want %d; a commit had at most %d", got, c.chunks, most.Load())
				}
				if half := int64(c.max.Bytes / 2); largest.Load() > half {
					t.Errorf("a commit had chunks of %d bytes, want %d at most: it has more than these", largest.Load(), half)
				}
				t.Logf("%d commits, of at most %d chunks and %d bytes", commits.Load(), most.Load(), largest.Load())
				p.stop(t)
			})
		})
	}
}

// watched tells of each commit.
type watched struct {
	storage.Storage
	before func(storage.Batch) // nil: nothing
	on     func(storage.Batch, error)
}

func (c *watched) Unwrap() storage.Storage { return c.Storage }
func (c *watched) Commit(ctx context.Context, b storage.Batch) error {
	if c.before != nil {
		c.before(b)
	}
	err := c.Storage.Commit(ctx, b)
	c.on(b, err)
	return err
}

// What an attempt has written when it fails is stored, although it has not flushed.
func TestFailedAttemptStoresItsChunks(t *testing.T) {
	virtual(t, func(t *testing.T) {
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			return errors.Join(w.Write("a"), activity.Permanent(errBroke))
		})
		wf := flow("wf", func(run *engine.Run) (string, error) {
			_, err := ask.Do(run, "in")
			return "failed", ignore(err)
		})
		p := boot(t, fresh(t), wf)
		result(t, start(t, wf, p, "o", ""))
		if got := chunksOf(t, words, p, "o", 0); !slices.Equal(got, []string{"a"}) {
			t.Errorf("read %q", got)
		}
		p.stop(t)
	})
}

// An attempt whose chunks could not be stored fails, and the next one writes.
func TestAStoreThatRefusesChunks(t *testing.T) {
	virtual(t, func(t *testing.T) {
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			return w.Write(fmt.Sprint(activity.InfoFrom(ctx).Attempt))
		})
		wf := flow("wf", func(run *engine.Run) (string, error) {
			_, err := ask.Do(run, "in")
			return "", err
		})
		p := boot(t, &refusingOnce{Storage: fresh(t)}, wf)
		result(t, start(t, wf, p, "o", ""))
		if got := chunksOf(t, words, p, "o", 0); !slices.Equal(got, []string{"2"}) {
			t.Errorf("read %q, want the chunk of the second attempt", got)
		}
		p.stop(t)
	})
}

// refusingOnce refuses the first chunks.
type refusingOnce struct {
	storage.Storage
	refused atomic.Bool
}

func (s *refusingOnce) Unwrap() storage.Storage { return s.Storage }
func (s *refusingOnce) Commit(ctx context.Context, b storage.Batch) error {
	if n, _ := appends(b); n > 0 && s.refused.CompareAndSwap(false, true) {
		return storage.ErrInvalidBatch
	}
	return s.Storage.Commit(ctx, b)
}

// ignore takes an error that is expected.
func ignore(err error) error {
	if err == nil {
		return errors.New("it did not fail")
	}
	return nil
}

// What another attempt has written when the workflow closes the stream is stored first.
func TestCloseAfterUnsavedChunks(t *testing.T) {
	virtual(t, func(t *testing.T) {
		written := make(chan bool, 1)
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			if err := w.Write("a"); err != nil {
				return err
			}
			written <- true
			time.Sleep(time.Second)
			return nil
		})
		wf := flow("wf", func(run *engine.Run) (string, error) {
			asked := ask.Go(run, "in")
			if _, err := engine.Step(run, "written", func(context.Context) (bool, error) { return <-written, nil }); err != nil {
				return "", err
			}
			if err := words.Close(run); err != nil { // within the 10 ms for which a chunk waits
				return "", err
			}
			_, err := asked.Get(run)
			return "", err
		})
		p := boot(t, fresh(t), wf)
		result(t, start(t, wf, p, "o", ""))
		if got := chunksOf(t, words, p, "o", 0); !slices.Equal(got, []string{"a"}) {
			t.Errorf("read %q", got)
		}
		p.stop(t)
	})
}

// WLD-70: readers that come while two attempts write get each chunk once, in the order of each writer.
func TestReadersJoinAnywhere(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		const each, join = 300, 50
		joined := make(chan bool, 2*each)
		ask := &activity.Activity[string, int]{Name: "ask", Run: func(ctx context.Context, who string) (int, error) {
			w := words.Writer(ctx)
			for i := range each {
				if err := w.Write(fmt.Sprint(who, i)); err != nil {
					return 0, err
				}
				if i%join == 0 {
					if err := w.Flush(); err != nil {
						return 0, err
					}
					joined <- true
				}
			}
			return 1, nil
		}}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			a, b := ask.Go(run, "a"), ask.Go(run, "b")
			_, err := a.Get(run)
			_, err2 := b.Get(run)
			return "", errors.Join(err, err2)
		})
		p := boot(t, s, wf)
		other := made(t, s, wf)
		defer other.Close()
		start(t, wf, p, "o", "")
		var reading sync.WaitGroup
		for n := range 2 * each / join {
			<-joined
			from := []stream.Source{p, other}[n%2]
			reading.Go(func() {
				next := map[string]int{}
				for c, err := range words.Read(ctx, from, "o", 0) {
					if err != nil {
						t.Error(err)
						return
					}
					who := c.Data[:1]
					if want := fmt.Sprint(who, next[who]); c.Data != want || c.Index != int64(next["a"]+next["b"]) {
						t.Errorf("chunk %d is %s, want %s", c.Index, c.Data, want)
						return
					}
					next[who]++
				}
				if next["a"] != each || next["b"] != each {
					t.Errorf("read %v", next)
				}
			})
		}
		reading.Wait()
		p.stop(t)
	})
}

// What is no stream, no chunk or no attempt is refused before anything is written.
func TestStreamsRefuse(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, err := sqlite.Open(t.TempDir()+"/db", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		named := func(name string) *stream.Stream[any] { return &stream.Stream[any]{Name: name} }
		var errs []error
		ask := &activity.Activity[string, int]{Name: "ask", Idempotent: true, Retry: activity.Retry{MaxAttempts: 1},
			Run: func(ctx context.Context, _ string) (int, error) {
				for _, w := range []struct {
					name  string
					chunk any
				}{{"", "v"}, {strings.Repeat("n", 101), "v"}, {"\xff", "v"}, {"words", func() {}}, {"words", strings.Repeat("w", stream.MaxChunk)}} {
					errs = append(errs, named(w.name).Writer(ctx).Write(w.chunk))
				}
				return 0, errBroke
			},
			Verify: func(ctx context.Context, _ string) (activity.Verification[int], error) {
				errs = append(errs, nil, named("words").Writer(ctx).Write("v"))
				return activity.CompletedWithResult(1), nil
			},
		}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if _, err := ask.Do(run, "in"); err != nil {
				return "", err
			}
			if err := named("").Close(run); !errors.Is(err, engine.ErrInvalid) {
				return "", fmt.Errorf("closed a stream without a name: %w", err)
			}
			return sqlite.Transact(run, "in", func(ctx context.Context, _ *sql.Tx) (string, error) {
				err := errors.Join(named("words").Writer(ctx).Write("v"), named("words").Writer(ctx).Flush())
				if err == nil {
					return "", errors.New("written in a transaction")
				}
				return "", nil
			})
		})
		p := boot(t, s, wf)
		result(t, start(t, wf, p, "o", ""))
		for i, err := range errs {
			if i < 5 && !errors.Is(err, engine.ErrInvalid) || i == 6 && !strings.Contains(fmt.Sprint(err), "not that of an attempt") {
				t.Errorf("%d: %v", i, err)
			}
		}
		if len(errs) != 7 || len(entries(t, s, "stream:"))+len(entries(t, s, "chunk:")) > 0 {
			t.Errorf("%d errors, %q and %q", len(errs), entries(t, s, "stream:"), entries(t, s, "chunk:"))
		}
		if err := words.Writer(ctx).Write("v"); err == nil {
			t.Error("written with a context of nothing")
		}
		if err := words.Writer(ctx).Flush(); err == nil {
			t.Error("flushed with a context of nothing")
		}
		test, cancel := context.WithCancelCause(activity.NewContext(ctx, activity.Info{WorkflowID: "o"}, nil))
		if w := words.Writer(test); w.Write("v") != nil || w.Flush() != nil {
			t.Error("an activity cannot be tested")
		}
		cancel(errBroke)
		if err := words.Writer(test).Write("v"); err != errBroke {
			t.Errorf("in a test whose context has ended: %v", err)
		}
		for id, want := range map[string]error{"": engine.ErrInvalid, "none": engine.ErrNotFound} {
			if _, err := chunksIn(t, words.Read(ctx, p, id, 0), 0); !errors.Is(err, want) {
				t.Errorf("read of %q: %v, want %v", id, err, want)
			}
		}
		for _, err := range named("").Read(ctx, p, "o", 0) {
			if !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("read of a stream without a name: %v", err)
			}
		}
		p.stop(t)

		var capability *storage.CapabilityError
		plain := streaming("plain", func(ctx context.Context, w *stream.Writer[string]) error {
			if err := w.Write("v"); !errors.As(err, &capability) {
				return fmt.Errorf("written: %w", err)
			}
			return nil
		})
		closing := flow("closing", func(run *engine.Run) (string, error) {
			if _, err := plain.Do(run, "in"); err != nil {
				return "", err
			}
			if err := words.Close(run); !errors.As(err, &capability) {
				return "", fmt.Errorf("closed: %w", err)
			}
			return "", nil
		})
		single := boot(t, new(memory.Store), closing, func(c *engine.Config) { c.Ownership = engine.OwnershipSingleOwner })
		result(t, start(t, closing, single, "o", ""))
		if _, err := chunksIn(t, words.Read(ctx, single, "o", 0), 0); !errors.As(err, &capability) {
			t.Errorf("read without conditions: %v", err)
		}
		single.stop(t)
	})
}

// A writer ends with its attempt, also if a goroutine that the attempt has left writes on.
func TestWriterEndsWithItsAttempt(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		late := make(chan error, 1)
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			go func() {
				time.Sleep(time.Minute)
				late <- w.Write("late")
			}()
			return w.Write("a")
		})
		wf := flow("wf", func(run *engine.Run) (string, error) {
			_, err := ask.Do(run, "in")
			return "", errors.Join(err, run.Sleep(time.Hour/2))
		})
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		if err := <-late; !errors.Is(err, stream.ErrStale) {
			t.Errorf("told %v", err)
		}
		result(t, h)
		if got := chunksOf(t, words, p, "o", 0); !slices.Equal(got, []string{"a"}) {
			t.Errorf("read %q", got)
		}
		p.stop(t)
	})
}

// A run says that it needs a release that knows streams, from its first chunk or close on. The driver learns of
// it, and no checkpoint is refused.
func TestRunNeedsStreams(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var refused atomic.Int64
		s := &watched{Storage: fresh(t), on: func(_ storage.Batch, err error) {
			if errors.Is(err, storage.ErrConflict) {
				refused.Add(1)
			}
		}}
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			return errors.Join(w.Write("a"), w.Flush())
		})
		then := func(name string, f func(run *engine.Run) error) *engine.Workflow[string, string] {
			return flow(name, func(run *engine.Run) (string, error) {
				err := f(run)
				if err == nil {
					_, err = approved.Receive(run)
				}
				return "", err
			})
		}
		wrote := then("wrote", func(run *engine.Run) error { _, err := ask.Do(run, "in"); return err })
		closed := then("closed", func(run *engine.Run) error { return words.Close(run) })
		neither := then("neither", func(run *engine.Run) error { return nil })
		p := boot(t, s, wrote, closed, neither)
		for _, wf := range []*engine.Workflow[string, string]{wrote, closed, neither} {
			start(t, wf, p, wf.Name, "")
		}
		time.Sleep(time.Second)
		for id, want := range map[string][]string{"wrote": {"streams"}, "closed": {"streams"}, "neither": nil} {
			r, err := journal.Load(ctx, s, id)
			if err != nil || !slices.Equal(r.Needs, want) {
				t.Errorf("%s needs %q, %v, want %q", id, r.Needs, err, want)
			}
		}
		if n := refused.Load(); n > 0 {
			t.Errorf("%d commits were refused", n)
		}
		p.kill()
	})
}

// A reader waits for a stream that is not there yet, and for more. The end of its context, of its loop and of the engine
// ends it at once.
func TestReaderWaits(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error { return w.Write("a") })
		wf := flow("wf", func(run *engine.Run) (string, error) {
			if err := run.Sleep(time.Minute); err != nil {
				return "", err
			}
			_, err := ask.Do(run, "in")
			if err == nil {
				_, err = approved.Receive(run)
			}
			return "", err
		})
		p, other := boot(t, s, wf), boot(t, s)
		start(t, wf, p, "o", "")
		began := time.Now()
		for _, e := range []*process{p, other} {
			for c, err := range words.Read(ctx, e, "o", 0) {
				if took := time.Since(began); err != nil || c.Data != "a" || took < time.Minute || took > time.Minute+5*time.Second {
					t.Errorf("%+v, %v, after %v", c, err, took)
				}
				break
			}
		}
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		began = time.Now()
		var interrupted *engine.InterruptedError
		if got, err := chunksIn(t, words.Read(limited, p, "o", 1), 1); !errors.As(err, &interrupted) || len(got) > 0 || time.Since(began) != time.Minute {
			t.Errorf("read %q, %v, after %v", got, err, time.Since(began))
		}
		ended := make(chan error, 1)
		go func() {
			_, err := chunksIn(t, words.Read(ctx, other, "o", 1), 1)
			ended <- err
		}()
		time.Sleep(time.Minute)
		other.close()
		if err := <-ended; !errors.Is(err, engine.ErrClosed) {
			t.Errorf("the engine is closed: %v", err)
		}
		if _, err := chunksIn(t, words.Read(ctx, other, "o", 0), 0); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("a closed engine reads: %v", err)
		}
		p.kill()
	})
}

// WLD-67, WLD-71: a reader beside the writer has a chunk as soon as it is stored. One of another engine finds it by looking, within a
// second, and the end too. A reader that takes its time delays nobody.
func TestReadersAreWoken(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		const many = 30
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			for range many {
				if err := w.Write(time.Now().Format(time.RFC3339Nano)); err != nil {
					return err
				}
				if err := sleep(ctx, 1700*time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		})
		wf := flow("wf", func(run *engine.Run) (string, error) {
			_, err := ask.Do(run, "in")
			return "", err
		})
		p := boot(t, s, wf)
		other := made(t, s, wf)
		defer other.Close()
		h := start(t, wf, p, "o", "")
		var reading sync.WaitGroup
		for name, r := range map[string]struct {
			from  stream.Source
			slow  time.Duration
			least time.Duration
			most  time.Duration
		}{
			"beside": {p, 0, 10 * time.Millisecond, 10 * time.Millisecond},
			"other":  {other, 0, 10 * time.Millisecond, 1010 * time.Millisecond},
			"slow":   {p, time.Minute, 0, many * time.Minute},
		} {
			reading.Go(func() {
				n := 0
				for c, err := range words.Read(ctx, r.from, "o", 0) {
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					at, err := time.Parse(time.RFC3339Nano, c.Data)
					if took := time.Since(at); err != nil || took < r.least || took > r.most {
						t.Errorf("%s: chunk %d after %v, %v, want %v to %v", name, c.Index, took, err, r.least, r.most)
					}
					n++
					time.Sleep(r.slow)
				}
				if n != many {
					t.Errorf("%s: %d chunks, want %d", name, n, many)
				}
				if i := describe(t, p, "o"); r.slow == 0 && time.Since(i.EndedAt) > r.most {
					t.Errorf("%s: the end was seen %v after it", name, time.Since(i.EndedAt))
				}
			})
		}
		result(t, h)
		reading.Wait()
		p.stop(t)
	})
}

// A thousand readers of a stream to which nobody writes read the store as often as one does.
func TestIdleReadersCostWhatOneDoes(t *testing.T) {
	calls := func(readers int) (n int) {
		virtual(t, func(t *testing.T) {
			wf := flow("wf", func(run *engine.Run) (string, error) { return approved.Receive(run) })
			f := storagetest.NewFaulty(fresh(t), nil)
			c := made(t, f, wf)
			start(t, wf, c, "o", "")
			var reading sync.WaitGroup
			limited, cancel := context.WithCancel(ctx)
			for range readers {
				reading.Go(func() {
					if _, err := chunksIn(t, words.Read(limited, c, "o", 0), 0); err == nil {
						t.Error("the stream ended")
					}
				})
			}
			time.Sleep(time.Minute)
			before := f.Calls()
			time.Sleep(time.Minute)
			n = f.Calls() - before
			cancel()
			reading.Wait()
			c.Close()
		})
		return n
	}
	one, many := calls(1), calls(1000)
	if one < 60 || one > 200 || many > one+2 {
		t.Errorf("%d calls in a minute for one reader, %d for a thousand", one, many)
	}
}

// A reader that is behind gets an error when the run is purged, and no chunk of the next run with this id.
func TestPurgeUnderAReader(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		word := "a"
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			for range 100 {
				if err := w.Write(word); err != nil {
					return err
				}
			}
			return nil
		})
		wf := flow("wf", func(run *engine.Run) (string, error) {
			_, err := ask.Do(run, "in")
			return "", err
		})
		for _, again := range []bool{false, true} {
			p := boot(t, s, wf)
			result(t, start(t, wf, p, "o", ""))
			n := 0
			for c, err := range words.Read(ctx, p, "o", 0) {
				if err != nil {
					if !errors.Is(err, engine.ErrNotFound) {
						t.Errorf("purged: %v", err)
					}
					break
				}
				if n++; c.Data != "a" {
					t.Fatalf("chunk %+v of another run", c)
				}
				if n > 1 {
					continue
				}
				if err := p.Purge(ctx, "o", audit); err != nil {
					t.Fatal(err)
				}
				if again {
					word = "b"
					result(t, start(t, wf, p, "o", ""))
				}
			}
			if n == 100 || n == 0 {
				t.Errorf("%d chunks", n)
			}
			intact(t, s)
			p.stop(t)
		}
	})
}

// A reader that waits while its run is purged, and another one begins with the same id, gets an error and no chunk of that
// one.
func TestReaderOfAPurgedRun(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error { return w.Write("a") })
		wf := flow("wf", func(run *engine.Run) (string, error) {
			_, err := ask.Do(run, "in")
			if err == nil {
				_, err = approved.Receive(run)
			}
			return "", err
		})
		p := boot(t, s, wf)
		other := made(t, s, wf) // which is not told of what p writes
		defer other.Close()
		start(t, wf, p, "o", "")
		told := make(chan error, 1)
		go func() {
			_, err := chunksIn(t, words.Read(ctx, other, "o", 1), 1)
			told <- err
		}()
		time.Sleep(10*time.Second + 100*time.Millisecond)
		if err := errors.Join(p.Terminate(ctx, "o", audit), p.Purge(ctx, "o", audit)); err != nil {
			t.Fatal(err)
		}
		h := start(t, wf, p, "o", "")
		time.Sleep(10 * time.Second)
		if _, err := approved.Send(ctx, p, "o", "", nil); err != nil {
			t.Fatal(err)
		}
		result(t, h)
		if err := <-told; !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("the reader of the run before is told: %v", err)
		}
		p.stop(t)
	})
}

// WLD-70: a chunk that is missing or damaged is an error, and not a gap.
func TestDamagedStream(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		ask := streaming("ask", func(ctx context.Context, w *stream.Writer[string]) error {
			return errors.Join(w.Write("a"), w.Write("b"), w.Write("c"))
		})
		wf := flow("wf", func(run *engine.Run) (string, error) {
			_, err := ask.Do(run, "in")
			return "", err
		})
		p := boot(t, s, wf)
		result(t, start(t, wf, p, "o", ""))
		second := keys.Chunk(keys.ChunksOf("o", "words"), 1)
		whole := get(t, s, second)
		for _, damage := range []func(){
			func() {
				if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(second)}}); err != nil {
					t.Fatal(err)
				}
			},
			func() { put(t, s, second, append(bytes.Clone(whole), 0)) },
		} {
			damage()
			got, err := chunksIn(t, words.Read(ctx, p, "o", 0), 0)
			if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), string(second)) || !slices.Equal(got, []string{"a"}) {
				t.Errorf("read %q, %v", got, err)
			}
		}
		put(t, s, keys.Stream("o", "words"), []byte("no head"))
		if _, err := chunksIn(t, words.Read(ctx, p, "o", 0), 0); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("read with a damaged head: %v", err)
		}
		if err := p.Purge(ctx, "o", audit); err != nil {
			t.Errorf("purge of a damaged stream: %v", err)
		}
		if left := slices.Concat(entries(t, s, "stream:"), entries(t, s, "chunk:")); len(left) > 0 {
			t.Errorf("purged, and there is %q", left)
		}
		p.stop(t)
	})
}

// streamed is the scenario of the sweep: two attempts write, a life and a failed attempt go by, and the workflow closes one of
// two streams.
func streamed(*sweep.World) sweep.Scenario {
	other := &stream.Stream[string]{Name: "other"}
	ask := &activity.Activity[string, int]{Name: "ask", Retry: activity.Retry{Backoff: time.Second}, Run: func(ctx context.Context, who string) (int, error) {
		w, o := words.Writer(ctx), other.Writer(ctx)
		if err := errors.Join(w.Write(who+"1"), o.Write(who), w.Flush(), w.Write(who+"2")); err != nil {
			return 0, err
		}
		if who == "b" && activity.InfoFrom(ctx).Attempt == 1 {
			return 0, errBroke
		}
		return 1, nil
	}}
	wf := &engine.Workflow[int, string]{Name: "streamed", Func: func(run *engine.Run, life int) (string, error) {
		a, b := ask.Go(run, "a"), ask.Go(run, "b")
		if _, err := a.Get(run); err != nil {
			return "", err
		}
		if _, err := b.Get(run); err != nil {
			return "", err
		}
		if life == 0 {
			return "", engine.ContinueAsNew(run, 1)
		}
		return "closed", words.Close(run)
	}}
	return sweep.Scenario{
		Workflows: []engine.Definition{wf},
		IDs:       []string{"o"},
		Drive: func(ctx context.Context, eng *engine.Engine) (string, error) {
			h, err := wf.Start(ctx, eng, "o", 0)
			if err != nil {
				return "", err
			}
			r, err := h.Result(ctx) // first: the engines of the sweep look rarely, and a reader looks every second
			if err != nil {
				return "", err
			}
			seen, next := map[string]bool{}, int64(0)
			for c, err := range words.Read(ctx, eng, "o", 0) {
				if err != nil {
					return "", err
				}
				if c.Index != next {
					return "", fmt.Errorf("chunk %d, want %d", c.Index, next)
				}
				next++
				seen[c.Data] = true
			}
			return fmt.Sprint(r, slices.Sorted(maps.Keys(seen))), nil
		},
	}
}
