package storagetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft/storage"
)

func contextDone(t *trial) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx, cancel
}

// contextsDone returns a cancelled context and one whose deadline has passed.
func contextsDone(t *trial) []context.Context {
	cancelled, cancel := contextDone(t)
	t.Cleanup(cancel)
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	t.Cleanup(cancel)
	return []context.Context{cancelled, late}
}

func doneContextWritesNothing(t *trial) {
	t.put("a=1")
	for _, ctx := range contextsDone(t) {
		for _, b := range []storage.Batch{
			batch(put("a", "2"), put("b", "2")),
			batch(storage.DeleteRange(storage.Range{})),
			{Ops: []storage.Op{put("a", "2")}, Urgent: true},
		} {
			if err := t.store.Commit(ctx, b); !errors.Is(err, ctx.Err()) {
				t.Errorf("Commit(%s): got %v, want %v", words(b), err, ctx.Err())
			}
			t.holds("a=1")
		}
	}
	t.put("a=3")
	t.holds("a=3")
}

func doneContextReadsNothing(t *trial) {
	t.put("a=1")
	for _, ctx := range contextsDone(t) {
		if v, err := t.store.Get(ctx, []byte("a")); !errors.Is(err, ctx.Err()) {
			t.Errorf("Get: got %q and error %v, want %v", v, err, ctx.Err())
		}
		if v, err := t.store.Get(ctx, []byte("missing")); !errors.Is(err, ctx.Err()) {
			t.Errorf("Get of a missing key: got %q and error %v, want %v", v, err, ctx.Err())
		}
		if page, err := t.store.Scan(ctx, storage.Range{}); !errors.Is(err, ctx.Err()) {
			t.Errorf("Scan: got %d entries and error %v, want %v", len(page), err, ctx.Err())
		}
	}
	t.got("a", "1")
	t.put("b=2")
	t.holds("a=1", "b=2")
}

func cancelledIsAllOrNothing(t *trial) {
	seed := t.seed()
	t.together(6, func(i int) error {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		var took time.Duration
		for round := range 40 {
			prefix := fmt.Sprintf("%d:%d:", i, round)
			b := batch(put(prefix+"a", "1"), put(prefix+"b", "1"))
			answer := t.cancelled(rnd, took, b)
			page, err := t.store.Scan(t.Context(), storage.Prefix([]byte(prefix)))
			switch n := len(page); {
			case err != nil:
				return fmt.Errorf("Scan after a cancelled Commit: got error %w, want a page", err)
			case answer == nil && n != 2:
				return fmt.Errorf("Commit answered nil: got %d of its 2 entries, want 2", n)
			case errors.Is(answer, storage.ErrConflict):
				return errors.New("Commit without conditions: got ErrConflict, want any other answer")
			case withdrawn(answer) && n != 0:
				return fmt.Errorf("Commit answered with a *WithdrawnError (%w): got %d of its 2 entries, want none", answer, n)
			case n != 0 && n != 2:
				return fmt.Errorf("Commit answered %v: got %d of its 2 entries, want all or none", answer, n)
			}
			began := time.Now()
			if err := t.store.Commit(t.Context(), batch(put(fmt.Sprint("neighbour", i), prefix))); err != nil {
				return fmt.Errorf("Commit after a cancelled one: got %w, want nil", err)
			}
			took = time.Since(began)
		}
		return nil
	})
	t.only(`^([0-5]:\d+:[ab]=1|neighbour[0-5]=.*)$`)
}

func cancelledIsNoConflict(t *trial) {
	seed := t.seed()
	t.together(6, func(i int) error {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		var took time.Duration
		for round := range 40 {
			key := fmt.Sprintf("%d:%d", i, round)
			began := time.Now()
			answer := t.cancelled(rnd, took, then(when(absent(key)), put(key, "1")))
			if errors.Is(answer, storage.ErrConflict) {
				return fmt.Errorf("Commit under Absent(%q), which nobody else puts: got ErrConflict, want any other answer", key)
			}
			if answer == nil {
				took = time.Since(began)
			}
			switch v, err := t.store.Get(t.Context(), []byte(key)); {
			case answer == nil && (err != nil || string(v) != "1"):
				return fmt.Errorf("Get after Commit answered nil: got %q and error %v, want it written", v, err)
			case withdrawn(answer) && !errors.Is(err, storage.ErrNotFound):
				return fmt.Errorf("Get after Commit answered with a *WithdrawnError: got %q and error %v, want ErrNotFound", v, err)
			}
		}
		return nil
	})
	t.only(`^[0-5]:\d+=1$`)
}

// Who reads page by page takes a short page for the last one.
func cancelledScanIsWholeOrFails(t *trial) {
	const entries = 600
	all := numbered("k", entries)
	for i := range all { // so many bytes that a store may read them in several steps
		all[i] += strings.Repeat("v", 4<<10)
	}
	for few := range slices.Chunk(all, 16) {
		t.put(few...)
	}
	seed := t.seed()
	t.together(4, func(i int) error {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		r := storage.Range{Limit: entries, Reverse: i%2 == 1}
		var took time.Duration
		for round := range 15 {
			var page []storage.Entry
			began := time.Now()
			err := t.midway(rnd, took, func(ctx context.Context) (err error) {
				if round == 0 {
					ctx = t.Context()
				}
				page, err = t.store.Scan(ctx, r)
				return err
			})
			switch {
			case err != nil && round == 0:
				return fmt.Errorf("Scan(%s): got %w, want a page", rangeWords(r), err)
			case err == nil && len(page) != entries:
				return fmt.Errorf("Scan(%s) cancelled midway: got %d of %d entries and no error, want all or an error", rangeWords(r), len(page), entries)
			case err == nil:
				took = time.Since(began)
			}
		}
		return nil
	})
}

// only expects all entries of the store to match pattern.
func (t *trial) only(pattern string) {
	t.Helper()
	for _, e := range t.all() {
		if ok, err := regexp.MatchString(pattern, e); !ok {
			t.Fatalf("got %s in the store, want only what matches %s (error %v): Commit read the caller's bytes or slices after it had answered", short(e), pattern, err)
		}
	}
}

// withdrawn reports whether a store says by err that it has written nothing, because a context had ended.
func withdrawn(err error) bool {
	_, ok := errors.AsType[*storage.WithdrawnError](err)
	return ok
}

// cancelled commits b and cancels the commit midway. After the answer it changes b, which
// the store must not read any more.
func (t *trial) cancelled(rnd *rand.Rand, took time.Duration, b storage.Batch) error {
	defer func() {
		for i := range b.If {
			scribble(b.If[i].Key, b.If[i].Value)
			b.If[i] = present("late")
		}
		for i, o := range b.Ops {
			scribble(o.Key, o.Value)
			b.Ops[i] = put(fmt.Sprint("late", i), "1")
		}
	}()
	return t.midway(rnd, took, func(ctx context.Context) error { return t.store.Commit(ctx, b) })
}

// midway makes a call whose context ends at a random time, which may be early or late in a call
// that takes as long as the previous one.
func (t *trial) midway(rnd *rand.Rand, took time.Duration, call func(context.Context) error) error {
	if rnd.IntN(2) == 0 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.Int64N(int64(took)*3/2+1)))
		defer cancel()
		return call(ctx)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	start, patience := rnd.IntN(20), rnd.IntN(20)
	go func() {
		for range patience {
			runtime.Gosched()
		}
		cancel()
	}()
	for range start {
		runtime.Gosched()
	}
	return call(ctx)
}
