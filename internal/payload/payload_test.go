package payload

import (
	"errors"
	"testing"

	"github.com/weft-go/weft"
)

// F11: the largest payload, and one byte more.
func TestPayloadsAreBounded(t *testing.T) {
	c := Codecs{Own: weft.JSON, ByName: map[string]weft.Codec{weft.JSON.Name(): weft.JSON}}
	for n, ok := range map[int]bool{0: true, weft.MaxPayload - 2: true, weft.MaxPayload - 1: false} {
		p, err := c.Encode(t.Context(), repeat('x', n))
		if (err == nil) != ok {
			t.Errorf("%d bytes and two quotes: %d bytes, %v, want ok %v", n, len(p.Data), err, ok)
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

// An error that matched none has no text of a sentinel, and matches none when it is read either.
func TestSentinelOf(t *testing.T) {
	none, broke := errors.New(""), errors.New("broke")
	for text, want := range map[string]error{"": nil, "other": nil, "broke": broke} {
		if got := SentinelOf(text, []error{none}, []error{broke}); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
