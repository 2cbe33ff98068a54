package canon

import (
	"bytes"
	"cmp"

	"github.com/go-json-experiment/json/jsontext"
)

// A cursor reads JSON that is valid and has no white space. In other data it ends
// somewhere, with no promise about what it returns.
type cursor struct {
	data []byte
	i    int
}

// peek returns the next byte, or 0 at the end.
func (c *cursor) peek() byte {
	if c.i < len(c.data) {
		return c.data[c.i]
	}
	return 0
}

// next goes to the next member or element of a container, the first time from its opening
// bracket. If there is none, it goes behind the container and returns false.
func (c *cursor) next() bool {
	switch c.peek() {
	case '{', '[', ',':
		c.i++
	}
	switch c.peek() {
	case '}', ']':
		c.i++
		return false
	}
	return c.peek() != 0
}

// name goes behind the name of a member and the colon. It returns the name as it is spelled,
// with its quotes.
func (c *cursor) name() []byte {
	raw := c.scalar()
	if c.peek() == ':' {
		c.i++
	}
	return raw
}

// scalar goes behind a string, number or literal, and returns it.
func (c *cursor) scalar() []byte {
	from := c.i
	if c.peek() == '"' {
		c.skipString()
	} else {
		for c.i++; c.i < len(c.data) && !ends(c.data[c.i]); c.i++ {
		}
	}
	c.i = min(c.i, len(c.data))
	return c.data[from:c.i]
}

// ends reports whether b is not of a number or literal, but after it.
func ends(b byte) bool { return b == ',' || b == '}' || b == ']' || b == ':' }

func (c *cursor) skipString() {
	for c.i++; c.i < len(c.data); c.i++ {
		switch c.data[c.i] {
		case '\\':
			c.i++
		case '"':
			c.i++
			return
		}
	}
}

// skip goes behind any value and returns it. It does not recur.
func (c *cursor) skip() []byte {
	from, depth := c.i, 0
	for {
		switch c.peek() {
		case 0:
			return c.data[from:c.i]
		case '{', '[':
			depth++
			c.i++
		case '}', ']':
			depth--
			c.i++
		case ',', ':':
			c.i++
		default:
			c.scalar()
		}
		if depth <= 0 {
			return c.data[from:c.i]
		}
	}
}

// unquote returns the value of a string that is spelled as RFC 8785 does.
func unquote(raw []byte) []byte {
	if len(raw) < 2 {
		return raw
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	s, _ := jsontext.AppendUnquote(nil, raw)
	return s
}

// compareUTF16 compares two strings by their UTF-16 code units. That is the order of their
// bytes, except that what needs two code units (in UTF-8 four bytes, the first of them at
// least 0xF0) comes before U+E000 to U+FFFF (the first byte is 0xEE or 0xEF).
func compareUTF16(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i < n && a[i] == b[i] {
		i++
	}
	if i == n {
		return cmp.Compare(len(a), len(b))
	}
	x, y := a[i], b[i]
	if x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0) {
		return cmp.Compare(y, x)
	}
	return cmp.Compare(x, y)
}
