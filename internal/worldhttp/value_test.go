package worldhttp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http/httptest"
	"runtime"
	"slices"
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

// A call of some megabytes does not take hundreds of them: lists and maps that have too many items are refused before they are decoded.
func TestTooManyItemsAreNotDecoded(t *testing.T) {
	h := serve(t)
	c := &client{t: t, h: h, spec: 5}
	c.begin("wrun_1", 1)
	text := func(s string) []byte { return append([]byte{0x60 | byte(len(s))}, s...) }
	in := func(b []byte, keys ...string) []byte { // maps of one key each
		for _, k := range slices.Backward(keys) {
			b = slices.Concat([]byte{0xa1}, text(k), b)
		}
		return b
	}
	const items = 2_000_000
	for _, indefinite := range []bool{false, true} {
		many := func(item byte) []byte {
			all := bytes.Repeat([]byte{item}, items)
			if indefinite {
				return slices.Concat([]byte{0x9f}, all, []byte{0xff})
			}
			return append(binary.BigEndian.AppendUint32([]byte{0x9a}, items), all...)
		}
		var headers []byte
		for i := range items / 4 {
			headers = append(headers, fmt.Sprintf("\x66%06d\x60", i)...)
		}
		headers = slices.Concat([]byte{0xbf}, headers, []byte{0xff})
		create := slices.Concat([]byte{0xa2}, text("runId"), text("wrun_1"), text("data"),
			[]byte{0xa2}, text("eventType"), text("attr_set"), text("eventData"), in(many(0xa0), "changes"))
		begin := slices.Concat([]byte{0xa1}, text("data"), []byte{0xa2}, text("eventType"), text("run_created"), text("eventData"),
			[]byte{0xa3}, text("workflowName"), text("order"), text("deploymentId"), text("blue"), text("attributes"), headers)
		for path, body := range map[string][]byte{
			"queue/settle": in(many(0xa0), "settlements"), "streams/write": in(many(0x60), "chunks"), "streams/close": in(many(0x60), "chunks"), "streams/read": in(many(0x60), "chunks"), "queue/publish": in(headers, "opts", "headers"), "events/create": create, "events/create?begin": begin,
		} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r := httptest.NewRequest("POST", "/v1/world/"+path, bytes.NewReader(body))
			r.Header.Set("Content-Type", "application/cbor")
			rw := httptest.NewRecorder()
			h.ServeHTTP(rw, r)
			runtime.ReadMemStats(&after)
			if took := (after.TotalAlloc - before.TotalAlloc) >> 20; rw.Code != 400 || took > uint64(len(body))*12>>20+1 {
				t.Errorf("%s with %d items: %d %s, and it took %d MiB", path, items, rw.Code, rw.Body, took)
			}
		}
	}
}
