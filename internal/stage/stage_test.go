package stage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// onAllStores runs f on a new store of each kind.
func onAllStores(t *testing.T, f func(t *testing.T, s storage.Storage)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T) (storage.Storage, error){
		"memory": func(t *testing.T) (storage.Storage, error) { return new(memory.Store), nil },
		"sqlite": func(t *testing.T) (storage.Storage, error) {
			return sqlite.Open(filepath.Join(t.TempDir(), "stage.db"), nil)
		},
		"bolt": func(t *testing.T) (storage.Storage, error) {
			return bolt.Open(filepath.Join(t.TempDir(), "stage.db"), nil)
		},
		"postgres": func(t *testing.T) (storage.Storage, error) {
			return postgres.Open(t.Context(), pgtest.URL(t), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			f(t, s)
		})
	}
}

// A model is what a store has, by key.
type model map[string]string

// commit applies b, or reports a conflict and changes nothing.
func (m model) commit(b storage.Batch) (conflict bool) {
	for _, c := range b.If {
		value, there := m[string(c.Key)]
		switch {
		case c.Kind == storage.IsAbsent && there, c.Kind != storage.IsAbsent && !there, c.Kind == storage.IsEqual && value != string(c.Value):
			return true
		}
	}
	for _, o := range b.Ops {
		if delete(m, string(o.Key)); o.Kind == storage.PutOp {
			m[string(o.Key)] = string(o.Value)
		}
	}
	return false
}

func (m model) clone() model {
	c := model{}
	for k, v := range m {
		c[k] = v
	}
	return c
}

// page is what a scan of r returns.
func (m model) page(r storage.Range) (keys []string) {
	for k := range m {
		if k >= string(r.Start) && (r.End == nil || k < string(r.End)) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	if r.Reverse {
		slices.Reverse(keys)
	}
	return keys[:min(len(keys), r.Limit)]
}

// aBatch draws a valid batch of keys under prefix. Conditions mostly hold of m.
func aBatch(t *rapid.T, prefix string, m model) (b storage.Batch) {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}), 1, 5, rapid.ID).Draw(t, "keys")
	for _, name := range names {
		key := []byte(prefix + name)
		put := storage.Put(key, []byte(rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "put")))
		change := rapid.IntRange(0, 2).Draw(t, "change")
		switch change {
		case 0:
			b.Ops = append(b.Ops, put)
		case 1:
			b.Ops = append(b.Ops, storage.Delete(key))
		}
		value, there := m[string(key)]
		if rapid.IntRange(0, 7).Draw(t, "mistaken") == 0 {
			value, there = rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "value"), rapid.Bool().Draw(t, "there")
		}
		switch kind := rapid.IntRange(0, 2).Draw(t, "condition"); {
		case kind == 0:
		case !there && change < 2:
			b.If = append(b.If, storage.Absent(key))
		case there && kind == 1:
			b.If = append(b.If, storage.Present(key))
		case there:
			b.If = append(b.If, storage.Equal(key, []byte(value)))
		}
	}
	return b
}

// Staging batches and committing their union is the same as committing them one after the other
// in one step: it has the same conflicts, when a batch is staged and when the union is committed,
// it shows the same meanwhile, and leaves the same.
func TestUnionIsItsBatchesOneAfterTheOther(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		round := 0
		rapid.Check(t, func(rt *rapid.T) {
			round++
			ctx, prefix := context.Background(), fmt.Sprintf("%06d:", round)
			base := model{}
			write := func(b storage.Batch) {
				if err := s.Commit(ctx, b); err != nil {
					rt.Fatalf("commit of another: %v", err)
				}
				base.commit(b)
			}
			first := aBatch(rt, prefix, base)
			first.If = nil
			write(first)

			tx, shown := stage.New(s), base.clone()
			var staged []storage.Batch
			for range rapid.IntRange(0, 5).Draw(rt, "batches") {
				if rapid.Bool().Draw(rt, "read first") {
					key := prefix + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")
					got, err := tx.Get(ctx, []byte(key))
					want, there := shown[key]
					if there != (err == nil) || !there && !errors.Is(err, storage.ErrNotFound) || string(got) != want {
						rt.Fatalf("get of %q: got %q, %v, want %q, %v", key, got, err, want, there)
					}
				}
				b := aBatch(rt, prefix, shown)
				conflict := shown.commit(b)
				err := tx.Commit(ctx, b)
				if conflict != errors.Is(err, storage.ErrConflict) || !conflict && err != nil {
					rt.Fatalf("staging %v: got %v, want a conflict: %v", b, err, conflict)
				}
				if !conflict {
					staged = append(staged, b)
				}
				r := storage.Prefix([]byte(prefix))
				r.Limit, r.Reverse = rapid.IntRange(1, 7).Draw(rt, "limit"), rapid.Bool().Draw(rt, "reverse")
				page, err := tx.Scan(ctx, r)
				if err != nil {
					rt.Fatal(err)
				}
				var got []string
				for _, e := range page {
					if got = append(got, string(e.Key)); shown[string(e.Key)] != string(e.Value) {
						rt.Fatalf("scan: %q has %q, want %q", e.Key, e.Value, shown[string(e.Key)])
					}
				}
				if diff := cmp.Diff(shown.page(r), got); diff != "" {
					rt.Fatalf("scan of %d, reverse %v: %s", r.Limit, r.Reverse, diff)
				}
			}
			for range rapid.IntRange(0, 2).Draw(rt, "others") {
				b := aBatch(rt, prefix, base)
				b.If = nil
				write(b)
			}

			want, conflict := base.clone(), false
			for _, b := range staged {
				conflict = conflict || want.commit(b)
			}
			if conflict {
				want = base
			}
			union, err := tx.Batch()
			if err == nil {
				err = s.Commit(ctx, union)
			}
			if conflict != errors.Is(err, storage.ErrConflict) || !conflict && err != nil {
				rt.Fatalf("commit of %v: got %v, want a conflict: %v", union, err, conflict)
			}
			got := model{}
			for e, err := range storage.All(ctx, s, storage.Prefix([]byte(prefix))) {
				if err != nil {
					rt.Fatal(err)
				}
				got[string(e.Key)] = string(e.Value)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				rt.Fatalf("after the commit: %s", diff)
			}
		})
	})
}

// Two batches may have one condition, and one may say more than the other. The union has the one
// that says more.
func TestConditionsOnOneKeyAreMerged(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		key := []byte("k")
		for _, c := range []struct {
			first, second storage.Condition
		}{
			{storage.Present(key), storage.Equal(key, []byte("1"))},
			{storage.Equal(key, []byte("1")), storage.Present(key)},
			{storage.Equal(key, []byte("1")), storage.Equal(key, []byte("1"))},
		} {
			put(t, s, "k", "1")
			tx := stage.New(s)
			for _, on := range []storage.Condition{c.first, c.second} {
				if err := tx.Commit(t.Context(), storage.Batch{If: []storage.Condition{on}}); err != nil {
					t.Fatal(err)
				}
			}
			b, err := tx.Batch()
			if want := []storage.Condition{storage.Equal(key, []byte("1"))}; err != nil || cmp.Diff(want, b.If) != "" {
				t.Errorf("%v and %v: got %v, %v, want %v", c.first, c.second, b.If, err, want)
			}
			put(t, s, "k", "2")
			if err := s.Commit(t.Context(), b); !errors.Is(err, storage.ErrConflict) {
				t.Errorf("%v and %v: the union ignores another value: got %v, want ErrConflict", c.first, c.second, err)
			}
		}
	})
}

// A Tx that rests on what has changed says so, and not that the next batch has a conflict: no
// other decision about that batch would help.
func TestStaleStageIsAborted(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		put(t, s, "k", "1")
		tx := stage.New(s)
		if err := tx.Commit(t.Context(), storage.Batch{If: []storage.Condition{storage.Equal([]byte("k"), []byte("1"))}}); err != nil {
			t.Fatal(err)
		}
		put(t, s, "k", "2")
		err := tx.Commit(t.Context(), storage.Batch{If: []storage.Condition{storage.Equal([]byte("k"), []byte("2"))}})
		if !errors.Is(err, stage.ErrStale) || !errors.Is(err, storage.ErrAborted) || errors.Is(err, storage.ErrConflict) {
			t.Errorf("got %v, want ErrStale and ErrAborted", err)
		}
		if _, err := tx.Batch(); !errors.Is(err, stage.ErrStale) {
			t.Errorf("the union of it: got %v, want ErrStale", err)
		}
		if err := tx.Commit(t.Context(), storage.Batch{}); !errors.Is(err, stage.ErrStale) {
			t.Errorf("the next batch: got %v, want ErrStale", err)
		}
	})
}

// The union must fit the store, also if each batch does. What would not fit is not staged.
func TestUnionFitsTheStore(t *testing.T) {
	s := narrow{new(memory.Store), storage.Size{Ops: 3, Bytes: 20}}
	tx := stage.New(s)
	one := storage.Batch{If: []storage.Condition{storage.Absent([]byte("a"))}, Ops: []storage.Op{storage.Put([]byte("a"), []byte("123"))}}
	if err := tx.Commit(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	for what, b := range map[string]storage.Batch{
		"operations": {Ops: []storage.Op{storage.Put([]byte("b"), nil), storage.Put([]byte("c"), nil)}},
		"bytes":      {Ops: []storage.Op{storage.Put([]byte("b"), []byte(strings.Repeat("x", 15)))}},
	} {
		err := tx.Commit(t.Context(), b)
		large, ok := errors.AsType[*stage.TooLargeError](err)
		if !ok || !errors.Is(err, storage.ErrInvalidBatch) || large.Max != (storage.Size{Ops: 3, Bytes: 20}) {
			t.Errorf("%s: got %v, want a *TooLargeError", what, err)
		}
	}
	// The same key again takes the room of its value alone.
	if err := tx.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte("a"), []byte(strings.Repeat("x", 18)))}}); err != nil {
		t.Errorf("the same key again: %v", err)
	}
	b, err := tx.Batch()
	if err != nil || b.Check(s.max) != nil || len(b.Ops) != 1 || b.Size() != (storage.Size{Ops: 2, Bytes: 20}) {
		t.Errorf("union: %v of %v, %v", b, b.Size(), err)
	}
}

// narrow takes small batches only.
type narrow struct {
	storage.Storage
	max storage.Size
}

func (n narrow) Capabilities() storage.Capabilities {
	c := n.Storage.Capabilities()
	c.MaxBatch = n.max
	return c
}

// Add reads nothing: the store judges when the union is committed. What is staged is judged at once.
func TestAddLeavesTheConditionsToTheStore(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		put(t, s, "k", "1")
		tx := stage.New(&unread{s, t})
		create := func(key string) storage.Batch {
			k := []byte(key)
			return storage.Batch{If: []storage.Condition{storage.Absent(k)}, Ops: []storage.Op{storage.Put(k, nil)}}
		}
		for _, key := range []string{"a", "k"} {
			if err := tx.Add(t.Context(), create(key)); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
		}
		if err := tx.Add(t.Context(), create("a")); !errors.Is(err, storage.ErrConflict) {
			t.Errorf("what is staged is created again: got %v, want ErrConflict", err)
		}
		b, err := tx.Batch()
		if err != nil || len(b.If) != 2 {
			t.Fatalf("union: %v, %v, want both conditions", b, err)
		}
		if err := s.Commit(t.Context(), b); !errors.Is(err, storage.ErrConflict) {
			t.Errorf("the union creates what is there: got %v, want ErrConflict", err)
		}
	})
}

// What is minted is read by nobody: the store judges when the union is committed. Other keys are read.
func TestMintLeavesWhatIsNewToTheStore(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		put(t, s, "new/a", "1")
		put(t, s, "old", "1")
		create := func(key string) storage.Batch {
			k := []byte(key)
			return storage.Batch{If: []storage.Condition{storage.Absent(k)}, Ops: []storage.Op{storage.Put(k, nil)}}
		}
		for _, last := range []string{"new/b", "new/a"} {
			tx := stage.New(&unread{s, t})
			tx.Mint([]byte("new/"))
			for _, key := range []string{"new/c", last} {
				if err := tx.Commit(t.Context(), create(key)); err != nil {
					t.Fatalf("%s: %v", key, err)
				}
			}
			if err := tx.Commit(t.Context(), create(last)); !errors.Is(err, storage.ErrConflict) {
				t.Errorf("what is staged is created again: got %v, want ErrConflict", err)
			}
			b, err := tx.Batch()
			if err != nil || len(b.If) != 2 {
				t.Fatalf("union: %v, %v, want both conditions", b, err)
			}
			if err := s.Commit(t.Context(), b); errors.Is(err, storage.ErrConflict) != (last == "new/a") {
				t.Errorf("the union with %s: got %v", last, err)
			}
		}
		tx := stage.New(s)
		tx.Mint([]byte("new/"))
		if err := tx.Commit(t.Context(), create("old")); !errors.Is(err, storage.ErrConflict) {
			t.Errorf("another key: got %v, want ErrConflict", err)
		}
	})
}

// What is presumed is read by nobody, and the union has the conditions of what was decided by it.
func TestPresumeIsJudgedByTheStore(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		put(t, s, "k", "2")
		for _, presumed := range []string{"", "1", "2"} {
			tx := stage.New(&unread{s, t})
			condition := storage.Equal([]byte("k"), []byte(presumed))
			if presumed == "" {
				tx.Presume([]byte("k"), nil)
				condition = storage.Absent([]byte("k"))
			} else {
				tx.Presume([]byte("k"), []byte(presumed))
			}
			value, err := tx.Get(t.Context(), []byte("k"))
			if string(value) != presumed || errors.Is(err, storage.ErrNotFound) != (presumed == "") {
				t.Errorf("presumed was %q, read %q, %v", presumed, value, err)
			}
			if err := tx.Commit(t.Context(), storage.Batch{If: []storage.Condition{condition}, Ops: []storage.Op{storage.Put([]byte("k"), []byte("2"))}}); err != nil {
				t.Fatal(err)
			}
			b, err := tx.Batch()
			if err != nil || len(b.If) != 1 {
				t.Fatalf("union: %v, %v, want the condition", b, err)
			}
			if err := s.Commit(t.Context(), b); errors.Is(err, storage.ErrConflict) != (presumed != "2") {
				t.Errorf("presumed was %q: got %v", presumed, err)
			}
		}
	})
}

// An unread store fails the test when it is read.
type unread struct {
	storage.Storage
	t *testing.T
}

func (s *unread) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.t.Errorf("%q was read", key)
	return s.Storage.Get(ctx, key)
}

func TestStageRefusesWhatNoUnionHas(t *testing.T) {
	tx := stage.New(new(memory.Store))
	for what, c := range map[string]struct {
		b    storage.Batch
		want error
	}{
		"a range":        {storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Prefix([]byte("a")))}}, errors.ErrUnsupported},
		"one key twice":  {storage.Batch{Ops: []storage.Op{storage.Put([]byte("a"), nil), storage.Delete([]byte("a"))}}, storage.ErrInvalidBatch},
		"absent, unused": {storage.Batch{If: []storage.Condition{storage.Absent([]byte("a"))}}, storage.ErrInvalidBatch},
	} {
		if err := tx.Commit(t.Context(), c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", what, err, c.want)
		}
	}
	if b, err := tx.Batch(); err != nil || len(b.If)+len(b.Ops) > 0 {
		t.Errorf("union: %v, %v, want nothing", b, err)
	}
}

// A Tx keeps no bytes of its callers, and they keep none of its.
func TestStageCopies(t *testing.T) {
	tx := stage.New(new(memory.Store))
	key, value := []byte("key"), []byte("value")
	if err := tx.Commit(t.Context(), storage.Batch{If: []storage.Condition{storage.Absent(key)}, Ops: []storage.Op{storage.Put(key, value)}}); err != nil {
		t.Fatal(err)
	}
	copy(key, "xxx")
	copy(value, "xxxxx")
	got, err := tx.Get(t.Context(), []byte("key"))
	if err != nil || string(got) != "value" {
		t.Errorf("got %q, %v, want the value as it was staged", got, err)
	}
	copy(got, "yyyyy")
	page, err := tx.Scan(t.Context(), storage.Range{})
	if err != nil || len(page) != 1 || string(page[0].Value) != "value" {
		t.Errorf("scan: got %q, %v, want the value as it was staged", page, err)
	}
	copy(page[0].Key, "zzz")
	if b, err := tx.Batch(); err != nil || !bytes.Equal(b.If[0].Key, []byte("key")) || !bytes.Equal(b.Ops[0].Key, []byte("key")) {
		t.Errorf("union: got %v, %v", b, err)
	}
}

func put(t *testing.T, s storage.Storage, key, value string) {
	t.Helper()
	if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put([]byte(key), []byte(value))}}); err != nil {
		t.Fatal(err)
	}
}
