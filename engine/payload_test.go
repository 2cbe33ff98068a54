package engine

import "testing"

// F11: the largest payload, and one byte more.
func TestPayloadsAreBounded(t *testing.T) {
	c := codecs{own: JSON, byName: map[string]Codec{JSON.Name(): JSON}}
	for n, ok := range map[int]bool{0: true, MaxPayload - 2: true, MaxPayload - 1: false} {
		p, err := c.encode(t.Context(), repeat('x', n))
		if (err == nil) != ok {
			t.Errorf("%d bytes and two quotes: %d bytes, %v, want ok %v", n, len(p.data), err, ok)
		}
	}
}

func repeat(c byte, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = c
	}
	return string(b)
}
