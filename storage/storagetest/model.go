package storagetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/weft-go/weft/storage"
)

// A model is the simplest possible store, to compare others with.
type model map[string]string

func (m model) commit(b storage.Batch) error {
	for _, c := range b.If {
		if !m.satisfies(c) {
			return storage.ErrConflict
		}
	}
	for _, o := range b.Ops {
		switch o.Kind {
		case storage.PutOp:
			m[string(o.Key)] = string(o.Value)
		case storage.DeleteOp:
			delete(m, string(o.Key))
		case storage.DeleteRangeOp:
			maps.DeleteFunc(m, func(key, _ string) bool { return within(key, o.Range) })
		}
	}
	return nil
}

func (m model) satisfies(c storage.Condition) bool {
	v, there := m[string(c.Key)]
	switch c.Kind {
	case storage.IsEqual:
		return there && v == string(c.Value)
	case storage.IsAbsent:
		return !there
	default:
		return there
	}
}

func (m model) scan(r storage.Range) []string {
	var entries []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if within(key, r) {
			entries = append(entries, key+"="+m[key])
		}
	}
	if r.Reverse {
		slices.Reverse(entries)
	}
	if r.Limit > 0 && len(entries) > r.Limit {
		entries = entries[:r.Limit]
	}
	return entries
}

func within(key string, r storage.Range) bool {
	return key >= string(r.Start) && (r.End == nil || key < string(r.End))
}

// seed returns WEFT_SEED, or a new random seed.
func (t *trial) seed() uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("WEFT_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(fmt.Errorf("WEFT_SEED: %w", err))
		}
	}
	t.Logf("WEFT_SEED=%d", seed)
	return seed
}

// dice generate batches and ranges over few keys, so that they often overlap.
type dice struct {
	*rand.Rand
	keys       []string
	conditions bool
}

func (d dice) key() string { return d.keys[d.IntN(len(d.keys))] }

func (d dice) value() string {
	if d.IntN(20) == 0 {
		return strings.Repeat("v", d.IntN(8000))
	}
	return []string{"", "0", "1", "\x00\xff"}[d.IntN(4)]
}

func (d dice) rangeOf() storage.Range {
	var r storage.Range
	if d.IntN(4) > 0 {
		r.Start = []byte(d.key())
	}
	if d.IntN(4) > 0 {
		r.End = []byte(d.key())
	}
	r.Limit = d.IntN(6)
	r.Reverse = d.IntN(2) == 0
	return r
}

// batch returns a random valid batch whose conditions mostly hold in m.
func (d dice) batch(m model) storage.Batch {
	b := storage.Batch{Urgent: d.IntN(5) == 0}
	absents := map[string]bool{}
	if d.conditions {
		for _, i := range d.Perm(len(d.keys))[:d.IntN(4)] {
			c := d.condition(d.keys[i], m)
			absents[d.keys[i]] = c.Kind == storage.IsAbsent
			b.If = append(b.If, c)
		}
	}
	extra := d.IntN(5)
	for _, i := range d.Perm(len(d.keys)) {
		switch key := d.keys[i]; {
		case absents[key] && d.IntN(3) == 0:
			b.Ops = append(b.Ops, del(key))
		case absents[key]:
			b.Ops = append(b.Ops, put(key, d.value()))
		case extra == 0:
		case d.IntN(6) == 0:
			extra--
			b.Ops = append(b.Ops, storage.DeleteRange(d.rangeOf()))
		case d.IntN(3) == 0:
			extra--
			b.Ops = append(b.Ops, del(key))
		default:
			extra--
			b.Ops = append(b.Ops, put(key, d.value()))
		}
	}
	return b
}

func (d dice) condition(key string, m model) storage.Condition {
	value, there := m[key]
	if d.IntN(5) == 0 { // by chance
		there = d.IntN(2) == 0
		value = d.value()
	}
	switch {
	case !there:
		return absent(key)
	case d.IntN(3) == 0:
		return present(key)
	default:
		return equal(key, value)
	}
}

func agreesWithModel(t *trial) {
	d := dice{
		Rand:       rand.New(rand.NewPCG(t.seed(), 1)),
		keys:       []string{"\x00", "a", "a\x00", "a:", "a:1", "a:2", "ab", "b", "\xfe", "\xff", "\xff\xff"},
		conditions: t.caps.ConditionalBatch,
	}
	m := model{}
	for step := range 400 {
		b := d.batch(m)
		want := m.commit(b)
		if got := t.store.Commit(t.Context(), b); !errors.Is(got, want) {
			t.Fatalf("step %d: Commit(%s): got %v, want %v", step, words(b), got, want)
		}
		key := d.key()
		if value, there := m[key]; there {
			t.got(key, value)
		} else {
			t.missing(key)
		}
		r := d.rangeOf()
		t.page(r, m.scan(r)...)
		if t.Failed() {
			t.Fatalf("step %d, after %s", step, words(b))
		}
	}
	t.holds(m.scan(storage.Range{})...)
}

func someSerialOrder(t *trial) {
	d := dice{
		Rand:       rand.New(rand.NewPCG(t.seed(), 2)),
		keys:       []string{"a", "b", "c", "d"},
		conditions: true,
	}
	m := model{}
	for round := range 120 {
		t.serial(fmt.Sprint("round ", round), m, []storage.Batch{d.batch(m), d.batch(m), d.batch(m)})
	}
}

// serial commits batches concurrently to a store that holds the contents of m. The
// results and the final contents must be those of some serial order of the batches.
// It then sets m to these contents.
func (t *trial) serial(what string, m model, batches []storage.Batch) {
	t.Helper()
	before := m.scan(storage.Range{})
	answers := make([]error, len(batches))
	var mu sync.Mutex
	t.together(len(batches), func(i int) error {
		err := t.store.Commit(t.Context(), batches[i])
		if err != nil && !errors.Is(err, storage.ErrConflict) {
			return fmt.Errorf("%s: Commit(%s): got %w, want nil or ErrConflict", what, words(batches[i]), err)
		}
		mu.Lock()
		defer mu.Unlock()
		answers[i] = err
		return nil
	})
	end := t.scan(storage.Range{})
	for order := range orders(len(batches)) {
		if after, ok := explains(m, batches, order, answers); ok && slices.Equal(after.scan(storage.Range{}), end) {
			clear(m)
			maps.Copy(m, after)
			return
		}
	}
	var told []string
	for i, b := range batches {
		told = append(told, fmt.Sprintf("\n\t  %s: got %v", words(b), answers[i]))
	}
	t.Fatalf("%s: got an end that no order of the batches has, want that of one\n\t before: %q%s\n\t end: %q",
		what, before, strings.Join(told, ""), end)
}

// explains returns the contents after committing batches to m in the given order, and
// whether each batch would have got its answer.
func explains(m model, batches []storage.Batch, order []int, answers []error) (model, bool) {
	m = maps.Clone(m)
	for _, i := range order {
		if !errors.Is(answers[i], m.commit(batches[i])) {
			return nil, false
		}
	}
	return m, true
}

// orders yields the permutations of 0 to n-1.
func orders(n int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		var more func(done []int) bool
		more = func(done []int) bool {
			if len(done) == n {
				return yield(done)
			}
			for i := range n {
				if !slices.Contains(done, i) && !more(append(done[:len(done):len(done)], i)) {
					return false
				}
			}
			return true
		}
		more(nil)
	}
}
