package world_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/internal/worldstream"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

func streams(t testing.TB, s storage.Storage) *worldstream.Streams {
	t.Helper()
	all, err := worldstream.Open(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(all.Close)
	return all
}

func texts(cs ...string) (all [][]byte) {
	for _, c := range cs {
		all = append(all, []byte(c))
	}
	return all
}

// write writes to the stream words of wrun_1.
func write(t testing.TB, s *worldstream.Streams, cs ...string) *worldstream.Written {
	t.Helper()
	w, err := s.Write(t.Context(), worldstream.Write{RunID: "wrun_1", Name: "words", Chunks: texts(cs...)})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func closeWords(t testing.TB, s *worldstream.Streams) {
	t.Helper()
	if err := s.CloseStream(t.Context(), "wrun_1", "words"); err != nil {
		t.Fatal(err)
	}
}

// words reads the stream words of wrun_1 to its end, from a chunk on. That must not take longer than 30 s.
func words(t testing.TB, s *worldstream.Streams, at int64) (all []string) {
	t.Helper()
	return wordsWithin(t, s, at, 30*time.Second)
}

func wordsWithin(t testing.TB, s *worldstream.Streams, at int64, most time.Duration) (all []string) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), most, fmt.Errorf("it did not end within %v", most))
	defer cancel()
	next := int64(-1)
	count, err := s.Read(ctx, "wrun_1", "words", at, func(_ uint64, cs []worldstream.Chunk) error {
		for _, c := range cs {
			if next >= 0 && int64(c.Index) != next {
				t.Errorf("chunk %d follows %d", c.Index, next-1)
			}
			next = int64(c.Index) + 1
			all = append(all, string(c.Data))
		}
		return nil
	})
	if err != nil || next >= 0 && int64(count) != next {
		t.Errorf("a stream was read to %d, and has %d chunks: %v, %v", next, count, err, context.Cause(ctx))
	}
	return all
}

// WLD-67, WLD-70, WLD-71: two processes append to a stream, and readers in both join it now and then. Each gets each chunk once, in the
// order in which its writer wrote it, and ends soon after the close.
func TestTwoProcessesWriteAndReadAStream(t *testing.T) {
	torture.Slow(t)
	onAllStores(t, func(t *testing.T, one, two *client) {
		one.begin("wrun_1")
		const writers, most = 4, 25 // in each process; chunks in a call
		each := torture.Rounds(5000, 1000, 200)
		processes := []*worldstream.Streams{streams(t, one.store), streams(t, two.store)}
		var written atomic.Int64
		var readers, writing sync.WaitGroup
		var closed atomic.Int64
		join := func(n int) {
			readers.Go(func() {
				got := wordsWithin(t, processes[n%2], 0, 5*time.Minute)
				if late := time.Now().UnixNano() - closed.Load(); closed.Load() > 0 && time.Duration(late) > time.Minute {
					t.Errorf("reader %d ended %v after the close", n, time.Duration(late))
				}
				next := map[string]int{}
				for _, c := range got {
					writer, n, _ := strings.Cut(c, " ")
					if want := strconv.Itoa(next[writer]); n != want {
						t.Fatalf("writer %s: got %s, want %s", writer, n, want)
					}
					next[writer]++
				}
				if len(got) != 2*each || len(next) != 2*writers {
					t.Errorf("reader %d got %d chunks of %d writers, want %d of %d", n, len(got), len(next), 2*each, 2*writers)
				}
			})
		}
		join(0)
		for p, s := range processes {
			for w := range writers {
				writing.Go(func() {
					for n, call := 0, 0; n < each/writers; call++ {
						var cs []string
						for range min(1+call%most, each/writers-n) {
							cs = append(cs, fmt.Sprint(p, "/", w, " ", n))
							n++
						}
						write(t, s, cs...)
						before := written.Add(int64(len(cs))) - int64(len(cs))
						for at := before/100 + 1; at*100 <= before+int64(len(cs)); at++ {
							join(int(at))
						}
					}
				})
			}
		}
		writing.Wait()
		closeWords(t, processes[0])
		closed.Store(time.Now().UnixNano())
		readers.Wait()
		if w := write(t, processes[1], "late"); !w.Closed || w.Index != uint64(2*each) {
			t.Errorf("written after the close: %+v", w)
		}
		sound(t, one.store)
	})
}

// Whatever becomes of a call to the store, a process's death included, each write of a client that is sent again until it is
// answered is in the stream once, in order.
func TestEachCallOfAStreamMayFail(t *testing.T) {
	everyCall(t, 30, []storagetest.Fault{storagetest.ErrorBefore, storagetest.ErrorAfter, storagetest.CrashBefore, storagetest.CrashAfter}, streamWith)
}

// streamWith writes a stream with a fault in a call to the store. It reports whether there was such a call.
func streamWith(t *testing.T, inner storage.Storage, call int, fault storagetest.Fault) (reached bool) {
	c := open(t, inner)
	c.begin("wrun_1")
	other := streams(t, inner)
	var calls atomic.Int64
	var mine *worldstream.Streams
	start := func() {
		mine = streams(t, storagetest.NewFaulty(inner, func(storagetest.Call) storagetest.Fault {
			if calls.Add(1) == int64(call) {
				return fault
			}
			return storagetest.None
		}))
	}
	start()
	// again makes a call until it is answered.
	again := func(f func(ctx context.Context, retry bool) error) {
		for try := range 5 {
			ctx, end := context.WithTimeout(t.Context(), time.Minute)
			err := f(ctx, try > 0)
			end()
			if err == nil {
				return
			}
			if refusal, ok := errors.AsType[*world.Error](err); ok {
				t.Fatalf("call %d, fault %d: refused: %v", call, fault, refusal)
			}
			start() // in another process
			write(t, other, fmt.Sprint("other ", try))
		}
		t.Fatalf("call %d, fault %d: no answer", call, fault)
	}
	var want []string
	for i := range 6 {
		var cs []string
		for j := range i + 1 {
			cs = append(cs, fmt.Sprint(i, ".", j))
		}
		want = append(want, cs...)
		again(func(ctx context.Context, retry bool) error {
			_, err := mine.Write(ctx, worldstream.Write{RunID: "wrun_1", Name: "words", Chunks: texts(cs...), RequestID: fmt.Sprint("req_", i), Retry: retry})
			return err
		})
	}
	again(func(ctx context.Context, _ bool) error { return mine.CloseStream(ctx, "wrun_1", "words") })
	sound(t, inner)
	got := slices.DeleteFunc(words(t, streams(t, inner), 0), func(c string) bool { return strings.HasPrefix(c, "other") })
	same(t, fmt.Sprintf("call %d, fault %d", call, fault), got, want)
	return calls.Load() >= int64(call)
}

// WLD-70: a write that is made again is answered again: also behind 255 others, after the close, and if the first one comes after the
// second.
func TestAWriteIsMadeAgain(t *testing.T) {
	store := new(memory.Store)
	open(t, store).begin("wrun_1")
	s, other := streams(t, store), streams(t, store)
	do := func(s *worldstream.Streams, call string, retry bool, cs ...string) *worldstream.Written {
		t.Helper()
		w, err := s.Write(t.Context(), worldstream.Write{RunID: "wrun_1", Name: "words", Chunks: texts(cs...), RequestID: call, Retry: retry})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	same(t, "the first write", do(s, "a", false, "a1", "a2", "a3").Index, 0)
	same(t, "the first write again", do(other, "a", true, "a1", "a2", "a3").Index, 0)
	for i := range 254 {
		do(other, fmt.Sprint("b", i), i%2 == 0, "b1", "b2")
	}
	same(t, "the second write, which is the first of its name", do(other, "c", true, "c1").Index, 3+254*2)
	same(t, "the first write behind 255 others", do(other, "a", true, "a1", "a2", "a3").Index, 0)
	// s has the head as it was after its write, so its commit is refused: then it finds what other has written.
	same(t, "the last write, delayed", do(s, "c", false, "c1").Index, 3+254*2)
	closeWords(t, s)
	same(t, "the last write after the close", do(other, "c", true, "c1"), &worldstream.Written{Index: 3 + 254*2})
	same(t, "chunks", len(words(t, s, 0)), 3+254*2+1)
}

// A call that comes again while the first one still waits is made once.
func TestAWriteComesAgainBeforeItIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memory.Store)
		open(t, store).begin("wrun_1")
		hold, commits := make(chan struct{}), 0
		s := streams(t, storagetest.NewFaulty(store, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" {
				if commits++; commits == 1 {
					<-hold
				}
			}
			return storagetest.None
		}))
		var writing sync.WaitGroup
		writing.Go(func() { write(t, s, "0") })
		synctest.Wait()
		var got [2]*worldstream.Written
		for i, retry := range []bool{false, true} {
			writing.Go(func() {
				var err error
				got[i], err = s.Write(t.Context(), worldstream.Write{RunID: "wrun_1", Name: "words", Chunks: texts("1"), RequestID: "a", Retry: retry})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		close(hold)
		writing.Wait()
		closeWords(t, s)
		same(t, "chunks", words(t, s, 0), "[0 1]")
		same(t, "answers", fmt.Sprint(*got[0], *got[1]), "{1 false} {1 false}")
	})
}

// WLD-71: a stream may be written before its run is there, and after its end: a step writes its last chunks when its end was
// recorded. Then a reader ends when nothing has come for a while.
func TestAStreamAndTheEndOfItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memory.Store)
		c := open(t, store)
		s := streams(t, store)
		write(t, s, "before")
		c.begin("wrun_1")
		var got []string
		begun := time.Now()
		var ended time.Duration
		var reading sync.WaitGroup
		reading.Go(func() {
			got = wordsWithin(t, s, 0, 3*time.Hour)
			ended = time.Since(begun)
		})
		time.Sleep(time.Hour)
		write(t, s, "during")
		c.must("wrun_1", world.RunCompleted, "", fields{"output": 1})
		time.Sleep(20 * time.Second)
		write(t, s, "after")
		time.Sleep(20 * time.Second)
		write(t, s, "late")
		reading.Wait()
		same(t, "chunks", got, "[before during after late]")
		if least := time.Hour + 70*time.Second; ended < least || ended > least+3*time.Second {
			t.Errorf("the reader ended after %v, want %v", ended, least)
		}
		info, err := s.Info(t.Context(), "wrun_1", "words")
		same(t, "the stream", fmt.Sprintf("%+v %v", *info, err), "{TailIndex:3 Done:false} <nil>")
	})
}

// A proxy may cut a reader to whom nothing is written. His next calls, also to other servers, end nevertheless soon after what is written
// last, and not earlier.
func TestAReaderOfAnEndedRunIsCut(t *testing.T) {
	for servers := 1; servers <= 2; servers++ {
		synctest.Test(t, func(t *testing.T) {
			store := new(memory.Store)
			c := open(t, store)
			var all []*worldstream.Streams
			for range servers {
				all = append(all, streams(t, store))
			}
			write(t, all[0], "before")
			c.begin("wrun_1")
			c.must("wrun_1", world.RunCompleted, "", fields{"output": 1})
			var got []string
			var last time.Time // when the last chunk was written
			over := false
			for call := 0; !over && call < 10; call++ {
				if call == 1 {
					write(t, all[0], "late")
					last = time.Now()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				_, err := all[call%servers].Read(ctx, "wrun_1", "words", int64(len(got)), func(_ uint64, cs []worldstream.Chunk) error {
					for _, c := range cs {
						got = append(got, string(c.Data))
					}
					return nil
				})
				cancel()
				if over = err == nil; !over && !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
			}
			if took := time.Since(last); !over || took < 30*time.Second || took > 62*time.Second {
				t.Errorf("%d servers: it was over %v, %v after the last chunk", servers, over, took)
			}
			same(t, "chunks", got, "[before late]")
		})
	}
}

// WLD-67, WLD-68, WLD-71: a chunk and a close wake a reader in the process at once, and one in another process within a second. Readers without
// anything to read cost what one does.
func TestReadersOfAStreamAreWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memory.Store)
		open(t, store).begin("wrun_1")
		var calls atomic.Int64
		s := streams(t, storagetest.NewFaulty(store, func(storagetest.Call) storagetest.Fault {
			calls.Add(1)
			return storagetest.None
		}))
		other := streams(t, store)
		var reading sync.WaitGroup
		const readers = 1000
		var beside, elsewhere atomic.Int64 // the longest, in nanoseconds
		read := func(s *worldstream.Streams, longest *atomic.Int64) {
			reading.Go(func() {
				count, err := s.Read(t.Context(), "wrun_1", "words", 0, func(_ uint64, cs []worldstream.Chunk) error {
					for _, c := range cs {
						at, err := time.Parse(time.RFC3339Nano, string(c.Data))
						if err != nil {
							t.Error(err)
						}
						longest.Store(max(longest.Load(), int64(time.Since(at))))
					}
					return nil
				})
				if err != nil || count != 10 {
					t.Errorf("%d chunks, %v", count, err)
				}
			})
		}
		for range readers {
			read(s, &beside)
		}
		read(other, &elsewhere)
		time.Sleep(10 * time.Minute)
		if n := calls.Load(); n > 3*600+10*readers {
			t.Errorf("%d idle readers made %d calls to the store in ten minutes", readers, n)
		}
		for range 10 {
			write(t, s, time.Now().Format(time.RFC3339Nano))
			time.Sleep(10 * time.Second)
		}
		closed := time.Now()
		closeWords(t, s)
		reading.Wait()
		if took := time.Since(closed); beside.Load() > 0 || elsewhere.Load() == 0 || elsewhere.Load() > int64(time.Second) || took > time.Second {
			t.Errorf("a reader in the process got a chunk after %v, another after %v; all ended after %v", time.Duration(beside.Load()), time.Duration(elsewhere.Load()), took)
		}
	})
}

// A thousand readers of a stream to which nobody writes read the store as often as one does.
func TestIdleReadersOfAStreamCostWhatOneDoes(t *testing.T) {
	calls := func(readers int) (n int64) {
		synctest.Test(t, func(t *testing.T) {
			s := &watched{Storage: new(memory.Store)}
			open(t, s).begin("wrun_1")
			all := streams(t, s)
			write(t, all, "a")
			ctx, cancel := context.WithCancel(t.Context())
			var reading sync.WaitGroup
			for range readers {
				reading.Go(func() {
					if _, err := all.Read(ctx, "wrun_1", "words", 0, func(uint64, []worldstream.Chunk) error { return nil }); err == nil {
						t.Error("the stream ended")
					}
				})
			}
			time.Sleep(time.Minute)
			before := s.reads.Load()
			time.Sleep(time.Minute)
			n = s.reads.Load() - before
			cancel()
			reading.Wait()
		})
		return n
	}
	one, many := calls(1), calls(1000)
	if one < 60 || one > 250 || many > one+2 {
		t.Errorf("%d reads in a minute for one reader, %d for a thousand", one, many)
	}
}

// Calls that write to a stream at once share commits, and none is too large.
func TestWritesShareCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memory.Store)
		open(t, store).begin("wrun_1")
		var commits, most atomic.Int64
		hold := make(chan struct{})
		s := streams(t, storagetest.NewFaulty(store, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" {
				commits.Add(1)
				most.Store(max(most.Load(), int64(c.Batch.Size().Bytes)))
				<-hold
			}
			return storagetest.None
		}))
		const calls = 400
		var writing sync.WaitGroup
		large := strings.Repeat("x", 20<<10)
		for range calls {
			writing.Go(func() { write(t, s, large) })
		}
		synctest.Wait()
		close(hold)
		writing.Wait()
		closeWords(t, s)
		same(t, "chunks", len(words(t, s, 0)), calls)
		if n := commits.Load(); n > calls/40 || most.Load() > 1<<20+1<<12 {
			t.Errorf("%d calls with 20 KiB each have made %d commits, the largest of %d bytes", calls, n, most.Load())
		}
	})
}

// What a store cannot take in one batch is refused, and nothing is written.
func TestAWriteIsTooLarge(t *testing.T) {
	store := &small{Storage: new(memory.Store), max: storage.Size{Ops: 20, Bytes: 10_000}}
	open(t, store).begin("wrun_1")
	s := streams(t, store)
	refusal := func(status int, cs ...string) {
		t.Helper()
		_, err := s.Write(t.Context(), worldstream.Write{RunID: "wrun_1", Name: "words", Chunks: texts(cs...)})
		refused(t, err, status, "chunks")
	}
	refusal(413, make([]string, 17)...)
	refusal(413, strings.Repeat("x", 10_000))
	refusal(400, make([]string, 1001)...)
	for _, w := range []worldstream.Write{{RunID: "wrun_\xff", Name: "words"}, {RunID: "wrun_1", Name: "\xff"}, {RunID: "wrun_1", Name: "words", RequestID: "caf\xe9"}} {
		w.Chunks = texts("a")
		_, err := s.Write(t.Context(), w)
		refused(t, err, 400, "UTF-8")
	}
	info, err := s.Info(t.Context(), "wrun_1", "words")
	if err != nil || info.TailIndex != -1 {
		t.Errorf("%+v, %v", info, err)
	}
	var writing sync.WaitGroup
	for range 20 {
		writing.Go(func() { write(t, s, make([]string, 16)...) })
		writing.Go(func() { write(t, s, strings.Repeat("x", 7000)) })
	}
	writing.Wait()
	closeWords(t, s)
	same(t, "chunks", len(words(t, s, 0)), 20*17)
}

// A small is a store with small batches.
type small struct {
	storage.Storage
	max storage.Size
}

func (s *small) Capabilities() storage.Capabilities {
	c := s.Storage.Capabilities()
	c.MaxBatch = s.max
	return c
}

func (s *small) Commit(ctx context.Context, b storage.Batch) error {
	if err := b.Check(s.max); err != nil {
		return err
	}
	return s.Storage.Commit(ctx, b)
}

// A page of chunks ends before it has more than the memory should hold, and says that more follows.
func TestPagesOfLargeChunks(t *testing.T) {
	store := new(memory.Store)
	open(t, store).begin("wrun_1")
	s := streams(t, store)
	for range 12 {
		write(t, s, strings.Repeat("x", 1<<20))
	}
	n, pages := 0, 0
	for p := (world.Page{}); ; pages++ {
		page, err := s.Chunks(t.Context(), "wrun_1", "words", p)
		if err != nil {
			t.Fatal(err)
		}
		n += len(page.Data)
		if !page.HasMore {
			break
		}
		if len(page.Data) == 0 || len(page.Data) > 11 || page.Cursor == nil {
			t.Fatalf("a page of %d chunks of 1 MiB with the cursor %v", len(page.Data), page.Cursor)
		}
		p.Cursor = *page.Cursor
	}
	same(t, "chunks and pages", fmt.Sprint(n, " ", pages+1), "12 2")
}

// Close ends readers and writers, and what comes later.
func TestStreamsAreClosed(t *testing.T) {
	store := new(memory.Store)
	open(t, store).begin("wrun_1")
	s := streams(t, store)
	begun := make(chan struct{})
	var reading sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reading.Go(func() {
		_, err := s.Read(ctx, "wrun_1", "words", 0, func(uint64, []worldstream.Chunk) error { close(begun); return nil })
		if !errors.Is(err, storage.ErrClosed) {
			t.Errorf("a reader got %v", err)
		}
	})
	reading.Go(func() {
		if _, err := s.Read(ctx, "", "other", 0, func(uint64, []worldstream.Chunk) error { return nil }); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("a reader by name got %v", err)
		}
	})
	<-begun
	s.Close()
	if reading.Wait(); ctx.Err() != nil {
		t.Error("Close did not end the readers")
	}
	if _, err := s.Write(t.Context(), worldstream.Write{RunID: "wrun_1", Name: "words", Chunks: texts("x")}); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("a writer got %v", err)
	}
}
