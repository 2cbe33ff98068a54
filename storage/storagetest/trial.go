package storagetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weft-go/weft/storage"
)

// A trial is one rule and the new store that it is tested on. Its methods write
// entries as "key=value".
type trial struct {
	testing.TB
	rule    rule
	adapter Adapter
	store   storage.Storage
	caps    storage.Capabilities
}

func (t *trial) Errorf(format string, args ...any) {
	t.Helper()
	t.TB.Errorf("rule broken: %s\n\t%s", t.rule.says, fmt.Sprintf(format, args...))
}

func (t *trial) Fatalf(format string, args ...any) {
	t.Helper()
	t.Errorf(format, args...)
	t.FailNow()
}

// commit expects b to be applied.
func (t *trial) commit(b storage.Batch) {
	t.Helper()
	if err := t.store.Commit(t.Context(), b); err != nil {
		t.Fatalf("Commit(%s): got %v, want nil", words(b), err)
	}
}

func (t *trial) do(ops ...storage.Op) {
	t.Helper()
	t.commit(storage.Batch{Ops: ops})
}

// put stores entries, in batches small enough for the store.
func (t *trial) put(entries ...string) {
	t.Helper()
	size := 100
	if m := t.caps.MaxBatch.Ops; m > 0 {
		size = min(size, m)
	}
	for chunk := range slices.Chunk(entries, size) {
		var ops []storage.Op
		for _, e := range chunk {
			k, v, _ := strings.Cut(e, "=")
			ops = append(ops, put(k, v))
		}
		t.do(ops...)
	}
}

// refused expects Commit of b to return an error that is want.
func (t *trial) refused(b storage.Batch, want error) {
	t.Helper()
	if err := t.store.Commit(t.Context(), b); !errors.Is(err, want) {
		t.Errorf("Commit(%s): got %v, want %v", words(b), err, want)
	}
}

func (t *trial) conflict(b storage.Batch) {
	t.Helper()
	t.refused(b, storage.ErrConflict)
}

// got expects key to have value.
func (t *trial) got(key, value string) {
	t.Helper()
	switch v, err := t.store.Get(t.Context(), []byte(key)); {
	case err != nil:
		t.Errorf("Get(%s): got error %v, want %s", short(key), err, short(value))
	case string(v) != value:
		t.Errorf("Get(%s): got %s, want %s", short(key), short(string(v)), short(value))
	}
}

// missing expects key not to exist.
func (t *trial) missing(key string) {
	t.Helper()
	if v, err := t.store.Get(t.Context(), []byte(key)); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Get(%s): got %s and error %v, want ErrNotFound", short(key), short(string(v)), err)
	}
}

// page expects one Scan to return these entries.
func (t *trial) page(r storage.Range, want ...string) {
	t.Helper()
	what := rangeWords(r)
	if r.Limit == 0 {
		what += ", no Limit"
	}
	t.same(fmt.Sprintf("Scan(%s)", what), t.scan(r), want)
}

// holds expects the store to contain exactly these entries, given in key order.
func (t *trial) holds(want ...string) {
	t.Helper()
	t.same("the whole store", t.all(), want)
}

func (t *trial) scan(r storage.Range) []string {
	t.Helper()
	page, err := t.store.Scan(t.Context(), r)
	if err != nil {
		t.Fatalf("Scan(%s): got error %v, want entries", rangeWords(r), err)
	}
	var entries []string
	for _, e := range page {
		entries = append(entries, entry(e))
	}
	return entries
}

func (t *trial) all() []string {
	t.Helper()
	var entries []string
	for e, err := range storage.All(t.Context(), t.store, storage.Range{}) {
		if err != nil {
			t.Fatalf("Scan of the whole store: got error %v, want entries", err)
		}
		entries = append(entries, entry(e))
	}
	return entries
}

// same compares entries and reports the first difference.
func (t *trial) same(what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i < len(got) && i < len(want) && got[i] == want[i] {
			continue
		}
		t.Errorf("%s: entry %d of %d: got %s, want %s of %d", what, i, len(got), at(got, i), at(want, i), len(want))
		return
	}
}

// reopen closes the store and opens it again. It skips the rest of the rule
// if the adapter's data does not outlive Close.
func (t *trial) reopen() {
	t.Helper()
	if err := t.store.Close(); err != nil && !errors.Is(err, storage.ErrClosed) {
		t.Fatalf("Close: got %v, want nil", err)
	}
	if t.adapter.Reopen == nil {
		if t.caps.Durable {
			t.Fatalf("got a store that claims Durable and an Adapter without Reopen, want proof")
		}
		t.Skip("not persistent: the Adapter has no Reopen")
	}
	s := t.adapter.Reopen(t.TB, t.store)
	t.Cleanup(func() { s.Close() })
	t.store = s
}

// together runs f(0) to f(n-1) concurrently, started in random order, waits for
// them, and fails with the first of their errors.
func (t *trial) together(n int, f func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for _, i := range rand.Perm(n) {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatalf("%v", err)
		}
	}
}

// read is Get for use on other goroutines than the test's.
func (t *trial) read(ctx context.Context, key string) (string, error) {
	v, err := t.store.Get(ctx, []byte(key))
	if err != nil {
		return "", fmt.Errorf("Get(%s): got error %w, want a value", short(key), err)
	}
	return string(v), nil
}

func batch(ops ...storage.Op) storage.Batch { return storage.Batch{Ops: ops} }

func when(conditions ...storage.Condition) storage.Batch { return storage.Batch{If: conditions} }

// then returns b with ops as its operations.
func then(b storage.Batch, ops ...storage.Op) storage.Batch {
	b.Ops = ops
	return b
}

func put(key, value string) storage.Op { return storage.Put([]byte(key), []byte(value)) }
func del(key string) storage.Op        { return storage.Delete([]byte(key)) }

func equal(key, value string) storage.Condition { return storage.Equal([]byte(key), []byte(value)) }
func absent(key string) storage.Condition       { return storage.Absent([]byte(key)) }
func present(key string) storage.Condition      { return storage.Present([]byte(key)) }

// between returns the range [start, end); an empty string means no bound.
func between(start, end string) storage.Range {
	var r storage.Range
	if start != "" {
		r.Start = []byte(start)
	}
	if end != "" {
		r.End = []byte(end)
	}
	return r
}

func entry(e storage.Entry) string { return string(e.Key) + "=" + string(e.Value) }
