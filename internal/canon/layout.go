package canon

import (
	"bytes"
	"slices"
)

// A layout orders the members of a document's objects. It reads the document once, and if
// something is out of order, writes it once: the time does not depend on the depth.
type layout struct {
	compact []byte   // the document; members and numbers are as they came
	out     []byte   // the same with canonical numbers
	open    []member // of the objects that are being read
	members []member // of objects, in their order
	objects []object // those out of order, and those around them, by from
	tooBig  bool     // a number was
}

// A member is out[from:to], the name and the value.
type member struct {
	name     []byte
	from, to int
	inner    int // the first of objects that may be in it
}

// An object is out[from:to].
type object struct {
	from, to    int
	first, last int // members[first:last]
	next        int // the first of objects that is behind it
}

// release returns l to its pool. The names that it still refers to are those of small
// documents.
func (l *layout) release() {
	if max(cap(l.compact), cap(l.out), cap(l.open), cap(l.members), cap(l.objects)) > maxReused {
		return
	}
	layouts.Put(l)
}

// canonical returns the canonical form of l.compact.
func (l *layout) canonical() ([]byte, bool) {
	l.out, l.open, l.members, l.objects, l.tooBig = l.out[:0], l.open[:0], l.members[:0], l.objects[:0], false
	l.value(&cursor{data: l.compact})
	switch {
	case l.tooBig:
		return nil, false
	case len(l.objects) == 0:
		return bytes.Clone(l.out), true
	}
	return l.ordered(make([]byte, 0, len(l.out)), 0, len(l.out), 0), true
}

// value copies a value to out.
func (l *layout) value(c *cursor) {
	switch c.peek() {
	case '{':
		l.object(c)
	case '[':
		l.array(c)
	case '"', 't', 'f', 'n':
		l.out = append(l.out, c.scalar()...)
	default:
		var ok bool
		if l.out, ok = appendNumber(l.out, c.scalar()); !ok {
			l.tooBig = true
		}
	}
}

func (l *layout) array(c *cursor) {
	l.out = append(l.out, '[')
	for first := true; c.next(); first = false {
		if !first {
			l.out = append(l.out, ',')
		}
		l.value(c)
	}
	l.out = append(l.out, ']')
}

// object copies an object to out. It stays in objects only if ordered is to write it.
func (l *layout) object(c *cursor) {
	self, base, sorted := len(l.objects), len(l.open), true
	l.objects = append(l.objects, object{from: len(l.out)})
	l.out = append(l.out, '{')
	for c.next() {
		if len(l.open) > base {
			l.out = append(l.out, ',')
		}
		raw := c.name()
		m := member{name: unquote(raw), from: len(l.out), inner: len(l.objects)}
		l.out = append(append(l.out, raw...), ':')
		l.value(c)
		m.to = len(l.out)
		sorted = sorted && (len(l.open) == base || compareUTF16(l.open[len(l.open)-1].name, m.name) < 0)
		l.open = append(l.open, m)
	}
	l.out = append(l.out, '}')
	if sorted && len(l.objects) == self+1 {
		l.objects = l.objects[:self]
	} else {
		o := &l.objects[self]
		o.to, o.first, o.last, o.next = len(l.out), len(l.members), len(l.members)+len(l.open)-base, len(l.objects)
		l.members = append(l.members, l.open[base:]...)
		if !sorted {
			slices.SortFunc(l.members[o.first:], func(a, b member) int { return compareUTF16(a.name, b.name) })
		}
	}
	l.open = l.open[:base]
}

// ordered appends out[from:to] to dst, with the members of all objects in order. next is the
// first of objects that may be in it.
func (l *layout) ordered(dst []byte, from, to, next int) []byte {
	for next < len(l.objects) && l.objects[next].from < to {
		o := l.objects[next]
		dst = append(append(dst, l.out[from:o.from]...), '{')
		for i, m := range l.members[o.first:o.last] {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = l.ordered(dst, m.from, m.to, m.inner)
		}
		dst = append(dst, '}')
		from, next = o.to, o.next
	}
	return append(dst, l.out[from:to]...)
}
