// Package stage collects batches and commits them as one. A [Tx] is a transaction of the host on
// any store with conditional batches: what accepts a storage.Tx, such as Engine.In and Ledger.In,
// stages its batches there, and the caller commits their union.
package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-go/weft/storage"
)

// A Tx is a storage.Tx that commits nothing itself. Its Commit adds a batch to a union, which
// Batch returns. Whoever commits the union gets the effect of all batches, one after the other, or
// of none. A Tx belongs to one goroutine and is used once.
//
// Reads see what is staged, and otherwise what the store has now. They are not repeatable: a row
// may change between two reads, and between a read and the commit of the union. Only the
// conditions of staged batches protect what was read. So a decision must have what it rests on
// among the conditions of its batch. A batch may consist of conditions alone, for a decision to
// write nothing.
//
// Commit judges each condition at once. On a key that is staged, it judges by what is staged, and
// the condition is done with. On any other key it judges by the store, and the condition is also
// carried to the union, because the store may change. After storage.ErrConflict nothing of the
// batch is staged, and the Tx may be used on.
type Tx struct {
	store   storage.Storage
	rows    map[string]*row
	order   []*row                       // as they were first named, so that equal stagings have equal unions
	slab    []row                        // where rows are allocated, several at once
	seen    map[string]storage.Condition // what Get found last in the store
	fresh   []byte                       // see Mint; nil: nothing is presumed
	size    storage.Size
	aborted error

	presumed map[string]storage.Condition // what Get answers without the store
}

// A row is a key that staged batches name.
type row struct {
	key []byte
	op  *storage.Op        // its last change; nil: none
	on  *storage.Condition // what the store must have; nil: anything

	change    storage.Op        // what op points to
	condition storage.Condition // what on points to
}

// New returns a Tx on s with nothing staged.
func New(s storage.Storage) *Tx {
	return &Tx{store: s, rows: make(map[string]*row, 16), seen: map[string]storage.Condition{}, presumed: map[string]storage.Condition{}}
}

// ErrStale is wrapped, beside storage.ErrAborted, in the error of a Commit that found that a
// condition of an earlier batch no longer holds in the store. The union would be refused. Decide
// all of it anew in another Tx.
var ErrStale = errors.New("stage: what an earlier batch rests on has changed in the store")

// A TooLargeError is returned if the union would be larger than a batch of the store may be.
// Nothing of the batch that made it so is staged. It wraps storage.ErrInvalidBatch.
type TooLargeError struct {
	Size, Max storage.Size // of the union, and of a batch of the store; zero in Max is no limit
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("stage: together the staged batches have %d operations of %d bytes, and the store takes at most %d of %d in one batch: do less in one transaction",
		e.Size.Ops, e.Size.Bytes, e.Max.Ops, e.Max.Bytes)
}

func (e *TooLargeError) Unwrap() error { return storage.ErrInvalidBatch }

// Base returns the store.
func (t *Tx) Base() storage.Storage { return t.store }

// Capabilities returns those of the store.
func (t *Tx) Capabilities() storage.Capabilities { return t.store.Capabilities() }

// Close does nothing. What is staged is dropped with the Tx.
func (t *Tx) Close() error { return nil }

// Batch returns the union of what is staged: commit it to the store with internal/settle. The
// error is that of a failed Commit after which the Tx cannot be used, and wraps
// storage.ErrAborted.
func (t *Tx) Batch() (storage.Batch, error) {
	var b storage.Batch
	b.If, b.Ops = slices.Grow(b.If, len(t.order)), slices.Grow(b.Ops, len(t.order))
	for _, r := range t.order {
		if r.on != nil {
			b.If = append(b.If, *r.on)
		}
		if r.op != nil {
			b.Ops = append(b.Ops, *r.op)
		}
	}
	return b, t.aborted
}

// Get returns the staged value of key, or that of the store.
func (t *Tx) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r := t.rows[string(key)]; r != nil && r.op != nil {
		if r.op.Kind == storage.DeleteOp {
			return nil, storage.ErrNotFound
		}
		return clone(r.op.Value), nil
	}
	if c, ok := t.presumed[string(key)]; ok {
		t.seen[string(key)] = c
		if c.Kind == storage.IsAbsent {
			return nil, storage.ErrNotFound
		}
		return clone(c.Value), nil
	}
	value, err := t.store.Get(ctx, key)
	switch {
	case err == nil:
		t.seen[string(key)] = storage.Equal(nil, clone(value))
	case errors.Is(err, storage.ErrNotFound):
		t.seen[string(key)] = storage.Absent(nil)
	}
	return value, err
}

// Scan returns a page of the store with what is staged.
func (t *Tx) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	limit := r.Limit
	if limit <= 0 {
		limit = storage.DefaultLimit
	}
	var puts []storage.Entry
	hidden := 0 // entries of the store that may not count
	for _, staged := range t.order {
		if staged.op == nil || bytes.Compare(staged.key, r.Start) < 0 || r.End != nil && bytes.Compare(staged.key, r.End) >= 0 {
			continue
		}
		hidden++
		if staged.op.Kind == storage.PutOp {
			puts = append(puts, storage.Entry{Key: bytes.Clone(staged.key), Value: clone(staged.op.Value)})
		}
	}
	r.Limit = limit + hidden
	page, err := t.store.Scan(ctx, r)
	if err != nil || hidden == 0 {
		return page, err
	}
	page = slices.DeleteFunc(page, func(e storage.Entry) bool {
		staged := t.rows[string(e.Key)]
		return staged != nil && staged.op != nil
	})
	page = append(page, puts...)
	slices.SortFunc(page, func(a, b storage.Entry) int {
		if r.Reverse {
			a, b = b, a
		}
		return bytes.Compare(a.Key, b.Key)
	})
	return page[:min(len(page), limit)], nil
}

// Commit stages b. Urgent and Group have no effect. Errors, after which nothing of b is staged:
// storage.ErrConflict; storage.ErrInvalidBatch, a *TooLargeError among others;
// errors.ErrUnsupported for a DeleteRange, because conditions on the keys in its range could not
// be judged later. After ErrStale, and after an error of the store, which both come with
// storage.ErrAborted, the Tx cannot be used any more.
func (t *Tx) Commit(ctx context.Context, b storage.Batch) error { return t.add(ctx, b, true) }

// Add stages b as Commit does, but reads nothing: the store alone judges conditions on keys that no
// earlier batch names, when the union is committed. It is for conditions that can hardly fail, such
// as that a new id is absent.
func (t *Tx) Add(ctx context.Context, b storage.Batch) error { return t.add(ctx, b, false) }

// Mint has Commit treat conditions that a key below prefix is absent as Add does: the store alone judges
// them. It is for the records of something that has a new random id.
func (t *Tx) Mint(prefix []byte) { t.fresh = prefix }

// Presume has Get answer that key has value, or with nil that it is absent, without asking the store. What is
// decided by that must have a condition of it, which the union then has. So only what is committed is true:
// if the union is refused, or the decision was to commit nothing, decide anew without presuming.
func (t *Tx) Presume(key, value []byte) {
	if value == nil {
		t.presumed[string(key)] = storage.Absent(nil)
		return
	}
	t.presumed[string(key)] = storage.Equal(nil, value)
}

func (t *Tx) add(ctx context.Context, b storage.Batch, read bool) error {
	if t.aborted != nil {
		return t.aborted
	}
	limit := t.store.Capabilities().MaxBatch
	switch err := b.Check(limit); {
	case err != nil:
		return err
	case b.HasDeleteRange():
		return fmt.Errorf("stage: a DeleteRange cannot be staged: delete the keys one by one: %w", errors.ErrUnsupported)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	carried, err := t.judge(ctx, b.If, read)
	if err != nil {
		return err
	}
	size := t.grown(carried, b.Ops)
	if limit.Ops > 0 && size.Ops > limit.Ops || limit.Bytes > 0 && size.Bytes > limit.Bytes {
		return &TooLargeError{Size: size, Max: limit}
	}
	t.size = size
	for _, c := range carried {
		r := t.row(c.Key)
		c.Key, c.Value = r.key, clone(c.Value)
		r.condition, r.on = c, &r.condition
	}
	for _, o := range b.Ops {
		r := t.row(o.Key)
		o.Key, o.Value = r.key, clone(o.Value)
		r.change, r.op = o, &r.change
	}
	return nil
}

// judge returns those of the conditions that the union gets, or ErrConflict. If it is not to read, it
// does not judge those on keys that no earlier batch names.
func (t *Tx) judge(ctx context.Context, conditions []storage.Condition, read bool) (carried []storage.Condition, _ error) {
	for _, c := range conditions {
		r := t.rows[string(c.Key)]
		if r != nil && r.op != nil {
			if !holds(c, r.op.Value, r.op.Kind == storage.PutOp) {
				return nil, fmt.Errorf("%w: %q is staged otherwise", storage.ErrConflict, c.Key)
			}
			continue
		}
		earlier := r != nil && r.on != nil
		if r == nil && (!read || c.Kind == storage.IsAbsent && t.fresh != nil && bytes.HasPrefix(c.Key, t.fresh)) {
			carried = append(carried, c)
			continue
		}
		if now, ok := t.seen[string(c.Key)]; ok && !earlier && now.Kind == c.Kind && bytes.Equal(now.Value, c.Value) {
			carried = append(carried, c) // it was read just now
			continue
		}
		value, err := t.store.Get(ctx, c.Key)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return nil, t.abort(err)
		}
		there := err == nil
		switch {
		case earlier && !holds(*r.on, value, there):
			return nil, t.abort(fmt.Errorf("%w: %q", ErrStale, c.Key))
		case !holds(c, value, there):
			return nil, fmt.Errorf("%w: %q", storage.ErrConflict, c.Key)
		case !earlier || r.on.Kind == storage.IsPresent: // Equal says more than Present
			carried = append(carried, c)
		}
	}
	return carried, nil
}

// holds reports whether c holds of a key that is there with value, or is not there.
func holds(c storage.Condition, value []byte, there bool) bool {
	switch c.Kind {
	case storage.IsAbsent:
		return !there
	case storage.IsPresent:
		return there
	}
	return there && bytes.Equal(value, c.Value)
}

// grown returns the size of the union with these conditions and operations, each of which
// replaces the one that is there.
func (t *Tx) grown(conditions []storage.Condition, ops []storage.Op) storage.Size {
	size := t.size
	add := func(key, value []byte, was bool, former int) {
		size.Bytes += len(value) - former
		if !was {
			size.Ops++
			size.Bytes += len(key)
		}
	}
	for _, c := range conditions {
		if r := t.rows[string(c.Key)]; r != nil && r.on != nil {
			add(c.Key, c.Value, true, len(r.on.Value))
			continue
		}
		add(c.Key, c.Value, false, 0)
	}
	for _, o := range ops {
		if r := t.rows[string(o.Key)]; r != nil && r.op != nil {
			add(o.Key, o.Value, true, len(r.op.Value))
			continue
		}
		add(o.Key, o.Value, false, 0)
	}
	return size
}

// row returns the row of key.
func (t *Tx) row(key []byte) *row {
	r := t.rows[string(key)]
	if r == nil {
		if len(t.slab) == cap(t.slab) {
			t.slab = make([]row, 0, 12)
		}
		t.slab = append(t.slab, row{key: bytes.Clone(key)})
		r = &t.slab[len(t.slab)-1]
		t.rows[string(key)] = r
		t.order = append(t.order, r)
	}
	return r
}

// abort makes t unusable.
func (t *Tx) abort(err error) error {
	t.aborted = fmt.Errorf("%w: %w", storage.ErrAborted, err)
	return t.aborted
}

// clone copies a value. An empty value stays one, and is not nil.
func clone(value []byte) []byte { return append([]byte{}, value...) }
