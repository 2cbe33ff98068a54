package reads_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/internal/reads"
)

// tick is how long a read takes: shorter than anybody's patience.
const tick = 20 * time.Millisecond

// Whoever asks while a key is being read gets the value of a later read, which all of them share. There is one read of a key at a
// time, and reads of other keys do not wait for it.
func TestSharedReadsAfterTheCallersHaveAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s reads.Shared[string, int]
		var stored, made atomic.Int64
		get := func(context.Context) (int, error) {
			made.Add(1)
			n := stored.Load()
			time.Sleep(tick)
			return int(n), nil
		}
		ask := func(key string, want int) {
			if n, err := s.Get(t.Context(), key, get); err != nil || n != want {
				t.Errorf("%s: %d, %v; want %d", key, n, err, want)
			}
		}
		var asked sync.WaitGroup
		began := time.Now()
		asked.Go(func() { ask("a", 0) })
		synctest.Wait()
		stored.Store(1)
		for range 50 {
			asked.Go(func() { ask("a", 1) })
		}
		asked.Go(func() { ask("b", 1) })
		synctest.Wait()
		if n := made.Load(); n != 2 {
			t.Errorf("%d reads are under way, want one of each key", n)
		}
		asked.Wait()
		if n, took := made.Load(), time.Since(began); n != 3 || took != 2*tick {
			t.Errorf("52 calls were %d reads in %v, want 3 in 2 ticks", n, took)
		}
	})
}

// A caller that gives up takes nothing from the others, whether it reads or waits.
func TestSharedWhoseCallersGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s reads.Shared[string, string]
		get := func(value string) func(ctx context.Context) (string, error) {
			return func(ctx context.Context) (string, error) {
				select {
				case <-time.After(tick):
					return value, nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
		}
		later := func() {
			t.Helper()
			began := time.Now()
			if v, err := s.Get(t.Context(), "a", get("later")); err != nil || v != "later" || time.Since(began) > 2*tick {
				t.Errorf("a later caller got %q, %v after %v", v, err, time.Since(began))
			}
		}
		var asked sync.WaitGroup
		read := 0 // rounds in which one who gave up was reading
		for range 10 {
			gone, cancel := context.WithCancel(t.Context())
			asked.Go(func() { s.Get(t.Context(), "a", get("first")) })
			synctest.Wait()
			for range 9 {
				asked.Go(func() {
					_, err := s.Get(gone, "a", func(ctx context.Context) (string, error) {
						read++
						return get("goes")(ctx)
					})
					if !errors.Is(err, context.Canceled) {
						t.Errorf("who gave up got %v", err)
					}
				})
			}
			synctest.Wait() // so one of them reads first
			asked.Go(func() {
				if v, err := s.Get(t.Context(), "a", get("stays")); err != nil || v != "stays" {
					t.Errorf("who stays got %q, %v", v, err)
				}
			})
			time.Sleep(3 * tick / 2)
			cancel()
			asked.Wait()
		}
		if read == 0 {
			t.Error("nobody gave up while it read")
		}

		// All who wait give up, and then also the one that reads.
		for _, reader := range []string{"stays", "goes"} {
			gone, cancel := context.WithCancel(t.Context())
			by := gone
			if reader == "stays" {
				by = t.Context()
			}
			asked.Go(func() { s.Get(by, "a", get(reader)) })
			synctest.Wait()
			for range 3 {
				asked.Go(func() { s.Get(gone, "a", get("")) })
				synctest.Wait()
			}
			cancel()
			asked.Wait()
			later()
		}
	})
}

// An error is that of all who share the read. A panic is that of the caller that reads.
func TestSharedWhoseReadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s reads.Shared[int, int]
		broken := errors.New("broken")
		made := 0
		fail := func(context.Context) (int, error) { made++; time.Sleep(tick); return 0, broken }
		var asked sync.WaitGroup
		for range 5 {
			asked.Go(func() {
				if _, err := s.Get(t.Context(), 1, fail); !errors.Is(err, broken) {
					t.Errorf("%v, want that of the read", err)
				}
			})
			synctest.Wait()
		}
		asked.Wait()
		if made != 2 {
			t.Errorf("%d reads failed, want 2: the others share the second", made)
		}

		asked.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic did not reach the caller")
				}
			}()
			s.Get(t.Context(), 1, func(context.Context) (int, error) { time.Sleep(tick); panic("broken") })
		})
		synctest.Wait()
		asked.Go(func() {
			began := time.Now()
			if n, err := s.Get(t.Context(), 1, func(context.Context) (int, error) { return 7, nil }); n != 7 || err != nil || time.Since(began) > tick {
				t.Errorf("after a panic: %d, %v after %v", n, err, time.Since(began))
			}
		})
		asked.Wait()
	})
}

// While a read takes long, another one begins every 100 ms, which all share who ask meanwhile.
func TestSharedWhoseReadsAreSlow(t *testing.T) {
	for takes, most := range map[time.Duration]int{60 * time.Millisecond: 12, 350 * time.Millisecond: 10} {
		synctest.Test(t, func(t *testing.T) {
			var s reads.Shared[int, int64]
			var counter, made, at, together atomic.Int64
			var asked sync.WaitGroup
			for i := range 500 {
				asked.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					asked := counter.Add(1)
					began := time.Now()
					v, err := s.Get(t.Context(), 1, func(context.Context) (int64, error) {
						made.Add(1)
						together.Store(max(together.Load(), at.Add(1)))
						defer at.Add(-1)
						v := counter.Load()
						time.Sleep(takes)
						return v, nil
					})
					if took := time.Since(began); err != nil || v < asked || took > 2*takes+200*time.Millisecond {
						t.Errorf("%v: read %d after %d had been written, %v, in %v", takes, v, asked, err, took)
					}
				})
			}
			asked.Wait()
			if n := int(made.Load()); n < 2 || n > most {
				t.Errorf("%v: %d reads, want at most %d", takes, n, most)
			}
			if n, most := together.Load(), int64(takes/(100*time.Millisecond))+1; n > most {
				t.Errorf("%v: %d reads at the same time, want at most %d", takes, n, most)
			}
		})
	}
}

// All who have waited for a read that hangs share another one.
func TestSharedDoesNotWaitForAReadThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s reads.Shared[int, string]
		hang, end := context.WithCancel(t.Context())
		var asked sync.WaitGroup
		made := 0
		asked.Go(func() {
			s.Get(t.Context(), 1, func(context.Context) (string, error) { <-hang.Done(); return "late", nil })
		})
		synctest.Wait()
		began := time.Now()
		for range 5 {
			asked.Go(func() {
				v, err := s.Get(t.Context(), 1, func(context.Context) (string, error) { made++; return "beside it", nil })
				if took := time.Since(began); v != "beside it" || err != nil || took != 100*time.Millisecond {
					t.Errorf("got %q, %v after %v", v, err, took)
				}
			})
		}
		time.Sleep(time.Second)
		end()
		asked.Wait()
		if made != 1 {
			t.Errorf("%d reads beside the one that hangs, want 1", made)
		}
		began = time.Now()
		if v, err := s.Get(t.Context(), 1, func(context.Context) (string, error) { return "later", nil }); v != "later" || err != nil || time.Since(began) > 0 {
			t.Errorf("a later caller got %q, %v after %v", v, err, time.Since(began))
		}
	})
}

// Who waits for a read that hangs goes on although the caller leaves that made the one beside it.
func TestSharedWhoseReadBesideIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s reads.Shared[int, string]
		hang := make(chan bool)
		var asked sync.WaitGroup
		hanging := func(ctx context.Context) (string, error) {
			select {
			case <-hang:
				return "late", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		asked.Go(func() { s.Get(t.Context(), 1, hanging) })
		synctest.Wait()
		var made atomic.Int64
		began := time.Now()
		for range 9 { // one of them reads after 100 ms, and hangs too
			asked.Go(func() {
				v, err := s.Get(t.Context(), 1, func(ctx context.Context) (string, error) {
					if made.Add(1) == 1 {
						return hanging(ctx)
					}
					return "beside it", nil
				})
				if took := time.Since(began); err != nil || v != "late" && (v != "beside it" || took > 400*time.Millisecond) {
					t.Errorf("got %q, %v after %v", v, err, took)
				}
			})
		}
		time.Sleep(150 * time.Millisecond)
		gone, cancel := context.WithCancel(t.Context())
		asked.Go(func() { s.Get(gone, 1, hanging) }) // reads after 200 ms
		time.Sleep(100 * time.Millisecond)
		cancel()
		time.Sleep(time.Second)
		close(hang)
		asked.Wait()
		if n := made.Load(); n != 2 {
			t.Errorf("%d reads, want 2: the others share the second", n)
		}
	})
}

// A call whose context has ended reads nothing.
func TestSharedWithAContextThatHasEnded(t *testing.T) {
	var s reads.Shared[int, int]
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := s.Get(ctx, 1, func(context.Context) (int, error) { t.Error("it has read"); return 0, nil })
	if err != why {
		t.Errorf("%v, want the cause", err)
	}
}

// While a counter rises, 16 callers each read it, and some of them give up. None gets a value that is older than its call.
func TestSharedIsNeverStale(t *testing.T) {
	var s reads.Shared[int, int64]
	var counter, made, calls atomic.Int64
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			for n := range 2000 {
				ctx, cancel := context.WithCancel(t.Context())
				if (n+i)%7 == 0 {
					go cancel()
				}
				at := counter.Add(1)
				v, err := s.Get(ctx, n%2, func(ctx context.Context) (int64, error) {
					made.Add(1)
					runtime.Gosched() // so that others ask meanwhile, also on one processor
					return counter.Load(), ctx.Err()
				})
				cancel()
				if err == nil && v < at {
					t.Errorf("read %d after %d had been written", v, at)
				}
				calls.Add(1)
			}
		})
	}
	callers.Wait()
	if made.Load() >= calls.Load() {
		t.Errorf("%d calls were %d reads: none was shared", calls.Load(), made.Load())
	}
}
