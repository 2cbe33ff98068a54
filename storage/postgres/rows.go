package postgres

import (
	"bytes"
	"slices"
	"sort"

	"github.com/weft-go/weft/storage"
)

// A row is what a group knows about one key that its batches name, whether or not the key
// exists.
type row struct {
	key    []byte
	update bool // lock it for update: a batch rewrites it if it exists
	share  bool // lock it for share: it is only compared
	probe  bool // check whether it exists
	value  bool // its content is needed

	locked  bool // it existed and is locked, so nobody else can change it
	seen    bool // it existed in the new snapshot
	judged  bool // enough is known to evaluate conditions
	before  bool // it existed before the group
	now     bool // it exists after the batches applied so far
	content []byte
	changed bool
}

// rows are the distinct keys of a group, in order.
type rows struct {
	list []row
	refs []ref
	at   []int32 // the row of each reference, in the order of batches, conditions and operations

	old    []byte  // buffer for the contents that were read
	wire   []byte  // buffer for arrays
	picked []int32 // buffer for lists of rows
}

// A ref is one mention of a key by a batch.
type ref struct {
	key       []byte
	place     int32 // in rows.at
	batch     int32 // -1: none, the key is in the range of a DeleteRange
	condition storage.ConditionKind
	op        storage.OpKind
}

// keepAtMost limits the size of the buffers that are reused.
const keepAtMost = 1 << 20

// build sets up the rows for the keys of g and for extra keys.
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

// mention records what one batch does with the row: refs are a condition on it, an
// operation on it, or both in this order.
func (x *row) mention(refs []ref) {
	condition, op := refs[0].condition, refs[len(refs)-1].op
	switch {
	case condition == storage.IsAbsent: // an insert will prove it
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

// pick lists the rows that are chosen. The result is valid for the transaction.
func (r *rows) pick(chosen func(*row) bool) []int32 {
	start := len(r.picked)
	for i := range r.list {
		if chosen(&r.list[i]) {
			r.picked = append(r.picked, int32(i))
		}
	}
	return r.picked[start:]
}

// keys returns the keys of rows as the argument of a statement.
func (r *rows) keys(sent []int32) [][]byte {
	start := len(r.wire)
	r.wire = beginArray(r.wire, len(sent))
	for _, i := range sent {
		r.wire = appendBytes(r.wire, r.list[i].key)
	}
	return [][]byte{r.wire[start:]}
}

// find returns the row of a key, or nil.
func (r *rows) find(key []byte) *row {
	i, ok := slices.BinarySearchFunc(r.list, key, func(x row, key []byte) int { return bytes.Compare(x.key, key) })
	if !ok {
		return nil
	}
	return &r.list[i]
}

// contents returns the new contents of rows as an argument.
func (r *rows) contents(sent []int32) []byte {
	start := len(r.wire)
	r.wire = beginArray(r.wire, len(sent))
	for _, i := range sent {
		r.wire = appendBytes(r.wire, r.list[i].content)
	}
	return r.wire[start:]
}

// lock records that the server locked the row, and its content.
func (x *row) lock(r *rows, content []byte) {
	x.locked, x.before = true, true
	if x.value {
		start := len(r.old)
		r.old = append(r.old, content...)
		x.content = r.old[start:len(r.old):len(r.old)]
	}
}

// conclude reports whether enough is known about the row: it is locked, or does not exist.
// A row that was seen but not locked is locked by others, or is new. It certainly exists,
// and that is enough if no lock on it was requested.
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

// judge evaluates the batches in order, each against the result of those before it. It
// skips a batch that names a row about which not enough is known.
func (r *rows) judge(g []*ticket) {
	at := r.at
	for _, t := range g {
		b := &t.batch
		n := len(t.names)
		mine := at[:n]
		at = at[n:]
		t.err = nil
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
