package worldhttp_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/worldhttp"
)

// What is nested is walked once, and not once for each level around it: neither in objects that may be bytes, nor in tags that may be
// dates.
func TestWhatIsNestedIsWalkedOnce(t *testing.T) {
	const levels, size = 900, 100_000
	object := func(key string) []byte {
		return []byte(strings.Repeat(`{"`+key+`":`, levels) + "[0" + strings.Repeat(",0", size-1) + "]" + strings.Repeat("}", levels))
	}
	tagged := func(tag byte) []byte {
		return append(append(bytes.Repeat([]byte{tag}, levels), 0x9a, 0, 1, 0x86, 0xa0), make([]byte, size)...)
	}
	fromJSON := func(b []byte) error { _, err := worldhttp.FromJSON(b); return err }
	toJSON := func(b []byte) error { _, err := worldhttp.ToJSON(b); return err }
	took := func(f func([]byte) error, b []byte) time.Duration {
		best := time.Hour
		for range 3 {
			began := time.Now()
			if err := f(b); err != nil {
				t.Fatal(err)
			}
			best = min(best, time.Since(began))
		}
		return best
	}
	for name, c := range map[string]struct {
		f           func([]byte) error
		plain, form []byte
	}{
		"data":        {fromJSON, object("date"), object("data")},
		"__type":      {fromJSON, object("__tape"), object("__type")},
		"text dates":  {toJSON, tagged(0xc2), tagged(0xc0)},
		"other dates": {toJSON, tagged(0xc2), tagged(0xc1)},
	} {
		if plain, form := took(c.f, c.plain), took(c.f, c.form); form > 5*plain+20*time.Millisecond {
			t.Errorf("%s: it took %v, and %v for others", name, form, plain)
		}
	}
}
