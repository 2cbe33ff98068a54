package canon

import (
	"bytes"
	"encoding/json"
	"math"

	"github.com/wI2L/jsondiff"
)

// Limits of a Diff.
const (
	MaxChanges = 100
	MaxBytes   = 8 << 10 // of its changes, encoded as a JSON array
	// MaxDepth is how deep Compare looks. Below, values are compared as a whole.
	MaxDepth = 32
)

// A Change is an operation of RFC 6902: add, remove or replace. Old and Value are there only
// if they were asked for and there is room; Old is not in RFC 6902.
type Change struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Old   json.RawMessage `json:"old,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// A Diff is what changes the first document into the second.
type Diff struct {
	Changes   []Change
	Bytes     int  // what json.Marshal would make of all changes, also of those left out; 0: equal
	Truncated bool // changes, or values of changes, were left out
}

// Compare returns where two canonical documents differ. The changes are in the order in which
// they apply. Of more than MaxChanges, it returns those that come first in the documents.
//
// The time is linear in the size of the documents, whatever is in them: what is given to
// jsondiff, which has no limits of its own, are not the documents but what a pruner leaves.
func Compare(a, b []byte, values bool) Diff {
	p := pruner{a: cursor{data: a}, b: cursor{data: b}, values: values}
	src, tgt, _ := p.value(0, 0)
	patch, err := jsondiff.CompareWithoutMarshal(src, tgt)
	if err != nil {
		panic(err) // only of other types than those that value returns
	}
	d := p.collect(patch)
	if p.bytes > 0 {
		d.Bytes = int(min(p.bytes+int64(len("[]")-len(",")), math.MaxInt))
	}
	return d
}

// Adds reports whether the canonical document b has all that a has, wherever it is: members and elements may have been added,
// and nothing was removed or replaced.
func Adds(a, b []byte) bool { return adds(&cursor{data: a}, &cursor{data: b}) }

// adds is Adds for the next value of two documents. If it returns true, it has read both.
func adds(a, b *cursor) bool {
	switch x, y := a.peek(), b.peek(); {
	case x == '{' && y == '{':
		left, right := a.member(), b.member()
		for left.ok {
			switch order := left.compare(right); {
			case order < 0:
				return false
			case order > 0:
				b.skip()
				right = b.member()
			default:
				if !adds(a, b) {
					return false
				}
				left, right = a.member(), b.member()
			}
		}
		for ; right.ok; right = b.member() {
			b.skip()
		}
		return true
	case x == '[' && y == '[':
		inA, inB := a.next(), b.next()
		for ; inA && inB; inA, inB = a.next(), b.next() {
			if !adds(a, b) {
				return false
			}
		}
		for ; inB; inB = b.next() {
			b.skip()
		}
		return !inA
	}
	return bytes.Equal(a.skip(), b.skip())
}

// A pruner reads two documents side by side. It counts what differs, and keeps a limited
// number of differences and what is around them: objects without equal members, and arrays
// with nil for equal elements. In place of values that differ are numbers, which are all
// different: the index in differences, twice, and 1 more for the new value.
type pruner struct {
	a, b        cursor
	values      bool
	differences []difference
	bytes       int64 // of all changes, each with a comma
	truncated   bool
}

// A difference is a change before it has a path.
type difference struct {
	old, value []byte // nil: there is none
	bare       int    // bytes without the values
	full       int
}

// value reads a value in both documents. path is the length of its path.
func (p *pruner) value(depth, path int) (a, b any, differ bool) {
	switch x, y := p.a.peek(), p.b.peek(); {
	case depth < MaxDepth && x == '{' && y == '{':
		return p.object(depth, path)
	case depth < MaxDepth && x == '[' && y == '[':
		return p.array(depth, path)
	}
	old, value := p.a.skip(), p.b.skip()
	if bytes.Equal(old, value) {
		return nil, nil, false
	}
	return p.keep("replace", path, old, value)
}

// keep counts a change, and returns what stands for the values if there is room for it.
func (p *pruner) keep(op string, path int, old, value []byte) (a, b any, kept bool) {
	d := difference{old: old, value: value, bare: len(`{"op":"","path":""}`) + len(op) + path}
	d.full = d.bare
	if p.values {
		d.full += valueSize("old", old) + valueSize("value", value)
	}
	p.bytes += int64(d.full + len(","))
	if len(p.differences) == MaxChanges || d.bare > MaxBytes {
		p.truncated = true
		return nil, nil, false
	}
	n := 2 * float64(len(p.differences))
	p.differences = append(p.differences, d)
	return n, n + 1, true
}

// object reads two objects, whose members are in one order.
func (p *pruner) object(depth, path int) (any, any, bool) {
	var a, b map[string]any
	set := func(m *map[string]any, name []byte, v any) {
		if *m == nil {
			*m = map[string]any{}
		}
		(*m)[string(name)] = v
	}
	left, right := p.a.member(), p.b.member()
	for left.ok || right.ok {
		switch order := left.compare(right); {
		case order < 0:
			if v, _, kept := p.keep("remove", path+left.size(), p.a.skip(), nil); kept {
				set(&a, left.name, v)
			}
			left = p.a.member()
		case order > 0:
			if _, v, kept := p.keep("add", path+right.size(), nil, p.b.skip()); kept {
				set(&b, right.name, v)
			}
			right = p.b.member()
		default:
			if x, y, differ := p.value(depth+1, path+left.size()); differ {
				set(&a, left.name, x)
				set(&b, left.name, y)
			}
			left, right = p.a.member(), p.b.member()
		}
	}
	if a == nil && b == nil {
		return nil, nil, false
	}
	return a, b, true
}

// array reads two arrays. Elements are compared by their index. As jsondiff does, what only
// one array has is appended, or removed at the index behind the last common one.
func (p *pruner) array(depth, path int) (any, any, bool) {
	var a, b []any
	n := 0
	inA, inB := p.a.next(), p.b.next()
	for ; inA && inB; n++ {
		if x, y, differ := p.value(depth+1, path+indexSize(n)); differ {
			a, b = append(pad(a, n), x), append(pad(b, n), y)
		}
		inA, inB = p.a.next(), p.b.next()
	}
	for ; inA; inA = p.a.next() {
		if v, _, kept := p.keep("remove", path+indexSize(n), p.a.skip(), nil); kept {
			a, b = append(pad(a, n), v), pad(b, n)
		}
	}
	for ; inB; inB = p.b.next() {
		if _, v, kept := p.keep("add", path+len("/-"), nil, p.b.skip()); kept {
			a, b = pad(a, n), append(pad(b, n), v)
		}
	}
	return a, b, a != nil || b != nil
}

// pad appends nil to s until it has n elements.
func pad(s []any, n int) []any {
	if len(s) < n {
		return append(s, make([]any, n-len(s))...)
	}
	if s == nil {
		return []any{}
	}
	return s
}

// collect returns the changes that fit, with their values if these fit too.
func (p *pruner) collect(patch jsondiff.Patch) Diff {
	d := Diff{Truncated: p.truncated}
	room := MaxBytes - len("[]") + len(",")
	for _, op := range patch {
		is := p.of(op)
		c := Change{Op: op.Type, Path: op.Path}
		if is.full < room {
			room -= is.full + len(",")
			if p.values {
				c.Old, c.Value = bytes.Clone(is.old), bytes.Clone(is.value)
			}
			d.Changes = append(d.Changes, c)
			continue
		}
		d.Truncated = true
		if is.bare < room {
			room -= is.bare + len(",")
			d.Changes = append(d.Changes, c)
		}
	}
	return d
}

// of returns the difference that an operation is about.
func (p *pruner) of(op jsondiff.Operation) difference {
	v := op.Value
	if op.Type == jsondiff.OperationRemove {
		v = op.OldValue
	}
	n, _ := v.(float64)
	return p.differences[int(n)/2]
}

// A side is a member of one of two objects, if it has one more.
type side struct {
	ok   bool
	raw  []byte
	name []byte
}

// member goes to the value of the next member.
func (c *cursor) member() side {
	if !c.next() {
		return side{}
	}
	raw := c.name()
	return side{ok: true, raw: raw, name: unquote(raw)}
}

// compare says which of two members comes first. One that there is not comes last.
func (s side) compare(other side) int {
	switch {
	case !other.ok:
		return -1
	case !s.ok:
		return 1
	case bytes.Equal(s.raw, other.raw):
		return 0
	}
	return compareUTF16(s.name, other.name)
}

// size is the length of the name in a path.
func (s side) size() int {
	return len("/") + max(len(s.raw)-len(`""`), 0) + grown(s.raw) + bytes.Count(s.raw, []byte("~")) + bytes.Count(s.raw, []byte("/"))
}

// indexSize is the length of an index in a path.
func indexSize(n int) int {
	size := len("/0")
	for ; n >= 10; n /= 10 {
		size++
	}
	return size
}

// valueSize is the length of a value in a change, with its name.
func valueSize(name string, raw []byte) int {
	if raw == nil {
		return 0
	}
	return len(`,"":`) + len(name) + len(raw) + grown(raw)
}

// grown is by how much json.Marshal makes a document longer that is spelled as RFC 8785 does:
// it escapes what HTML and JavaScript do not take.
func grown(raw []byte) int {
	n := 0
	for i, c := range raw {
		switch {
		case c == '<' || c == '>' || c == '&':
			n += len(`\u003c`) - 1
		case c == 0xE2 && i+2 < len(raw) && raw[i+1] == 0x80 && raw[i+2]&^1 == 0xA8:
			n += len(`\u2028`) - 3
		}
	}
	return n
}
