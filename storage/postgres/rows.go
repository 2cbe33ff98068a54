package postgres

import (
	"bytes"
	"slices"
	"sort"

	"github.com/weft-go/weft/storage"
)

// A row is what a group knows of one key that its batches name, whether or not
// there is something under it.
type row struct {
	key    []byte
	update bool // it is to be locked for update: a batch rewrites it as it is
	share  bool // it is to be locked for share: it is only compared
	probe  bool // it is to be seen whether it is there
	value  bool // what is in it matters

	locked  bool // it was there, and nobody else may change it
	seen    bool // it was there, on the fresh snapshot
	judged  bool // what is known of it may be acted on
	before  bool // it was there before the group
	now     bool // it is there, with what the group did so far
	content []byte
	changed bool
}

// rows are the keys of a group, each once, in their order.
type rows struct {
	list []row
	refs []ref
	at   []int32 // the row of each reference, in the order of batches, conditions and operations

	old    []byte  // the memory of contents that were read
	wire   []byte  // the memory of arrays
	picked []int32 // the memory of lists of rows
}

// A ref is that a batch names a key.
type ref struct {
	key       []byte
	place     int32 // in rows.at
	batch     int32 // -1: none, it lies in the range of a DeleteRange
	condition storage.ConditionKind
	op        storage.OpKind
}

// keepAtMost bounds what is kept for its memory.
const keepAtMost = 1 << 20

// build makes the rows of g and of extra keys.
func (r *rows) build(g []*ticket, extra [][]byte) {
	clear(r.list)
	clear(r.refs)
	r.list, r.refs, r.picked = r.list[:0], r.refs[:0], r.picked[:0]
	if r.old = r.old[:0]; cap(r.old) > keepAtMost {
		r.old = nil
	}
	if r.wire = r.wire[:0]; cap(r.wire) > keepAtMost {
		r.wire = nil
	}
	for i, t := range g {
		for j := range t.batch.If {
			c := &t.batch.If[j]
			r.refs = append(r.refs, ref{key: c.Key, place: int32(len(r.refs)), batch: int32(i), condition: c.Kind})
		}
		for j := range t.batch.Ops {
			if o := &t.batch.Ops[j]; o.Kind != storage.DeleteRangeOp {
				r.refs = append(r.refs, ref{key: o.Key, place: int32(len(r.refs)), batch: int32(i), op: o.Kind})
			}
		}
	}
	for _, key := range extra {
		r.refs = append(r.refs, ref{key: key, place: int32(len(r.refs)), batch: -1})
	}
	slices.SortFunc(r.refs, func(a, b ref) int {
		if c := bytes.Compare(a.key, b.key); c != 0 {
			return c
		}
		return int(a.place - b.place)
	})
	r.at = slices.Grow(r.at[:0], len(r.refs))[:len(r.refs)]
	for i := 0; i < len(r.refs); {
		x := row{key: r.refs[i].key}
		for i < len(r.refs) && bytes.Equal(r.refs[i].key, x.key) {
			first := i
			for i < len(r.refs) && r.refs[i].batch == r.refs[first].batch && bytes.Equal(r.refs[i].key, x.key) {
				r.at[r.refs[i].place] = int32(len(r.list))
				i++
			}
			x.mention(r.refs[first:i])
		}
		r.list = append(r.list, x)
	}
}

// mention notes what one batch wants of the row: it names it in a condition, in
// an operation, or in one after the other.
func (x *row) mention(refs []ref) {
	condition, op := refs[0].condition, refs[len(refs)-1].op
	switch {
	case condition == storage.IsAbsent: // the insert will prove it
		x.probe = true
	case op != 0:
		x.update, x.probe = true, true
	default:
		x.share = true
	}
	if condition == storage.IsEqual {
		x.value = true
	}
}

// pick lists the rows that are chosen. The answer is good for the transaction.
func (r *rows) pick(chosen func(*row) bool) []int32 {
	start := len(r.picked)
	for i := range r.list {
		if chosen(&r.list[i]) {
			r.picked = append(r.picked, int32(i))
		}
	}
	return r.picked[start:]
}

// keys are those of rows, as the argument of a statement.
func (r *rows) keys(sent []int32) [][]byte {
	start := len(r.wire)
	r.wire = beginArray(r.wire, len(sent))
	for _, i := range sent {
		r.wire = appendBytes(r.wire, r.list[i].key)
	}
	return [][]byte{r.wire[start:]}
}

// find is the row of a key, or nil.
func (r *rows) find(key []byte) *row {
	i, ok := slices.BinarySearchFunc(r.list, key, func(x row, key []byte) int { return bytes.Compare(x.key, key) })
	if !ok {
		return nil
	}
	return &r.list[i]
}

// contents are what rows shall have in them.
func (r *rows) contents(sent []int32) []byte {
	start := len(r.wire)
	r.wire = beginArray(r.wire, len(sent))
	for _, i := range sent {
		r.wire = appendBytes(r.wire, r.list[i].content)
	}
	return r.wire[start:]
}

// lock notes that the server locked the row, and what is in it.
func (x *row) lock(r *rows, content []byte) {
	x.locked, x.before = true, true
	if x.value {
		start := len(r.old)
		r.old = append(r.old, content...)
		x.content = r.old[start:len(r.old):len(r.old)]
	}
}

// conclude says what may be acted on: what is locked, and what is not there. A
// row that was only seen was locked by others, or came in between. But it
// certainly is not absent, and if nobody asks for more, that will do.
func (x *row) conclude() bool {
	switch {
	case x.locked:
		x.judged = true
	case x.probe && !x.seen:
		x.judged = true
	case x.seen && !x.update && !x.share:
		x.judged, x.before = true, true
	}
	x.now = x.before
	return x.judged
}

// judge goes through the batches in their order, each on what those before it
// did. One that names a row which cannot be judged is skipped.
func (r *rows) judge(g []*ticket) {
	at := r.at
	for _, t := range g {
		b := &t.batch
		n := len(t.names)
		mine := at[:n]
		at = at[n:]
		t.err, t.skipped = nil, false
		for _, i := range mine {
			if !r.list[i].judged {
				t.skipped = true
			}
		}
		if t.skipped {
			continue
		}
		for i := range b.If {
			if !r.list[mine[i]].holds(&b.If[i]) {
				t.err = storage.ErrConflict
				break
			}
		}
		if t.err == nil {
			r.apply(b.Ops, mine[len(b.If):])
		}
	}
}

func (x *row) holds(c *storage.Condition) bool {
	switch c.Kind {
	case storage.IsAbsent:
		return !x.now
	case storage.IsPresent:
		return x.now
	default:
		return x.now && bytes.Equal(x.content, c.Value)
	}
}

func (r *rows) apply(ops []storage.Op, at []int32) {
	for i := range ops {
		o := &ops[i]
		if o.Kind == storage.DeleteRangeOp {
			r.removeRange(o.Range)
			continue
		}
		x := &r.list[at[0]]
		at = at[1:]
		x.now, x.content, x.changed = o.Kind == storage.PutOp, o.Value, true
	}
}

func (r *rows) removeRange(rg storage.Range) {
	first := sort.Search(len(r.list), func(i int) bool { return bytes.Compare(r.list[i].key, rg.Start) >= 0 })
	for i := first; i < len(r.list) && (rg.End == nil || bytes.Compare(r.list[i].key, rg.End) < 0); i++ {
		x := &r.list[i]
		x.now, x.content, x.changed = false, nil, true
	}
}
