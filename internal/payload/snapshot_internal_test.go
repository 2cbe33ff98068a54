package payload

import (
	"crypto/sha256"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// The digest of an input is that of its JSON, also of what is encoded without a parser.
func TestDigestIsThatOfTheJSON(t *testing.T) {
	type name string
	for _, v := range []any{
		nil, 0, -1, math.MaxInt, math.MinInt, int64(math.MinInt64), int8(1), uint(1), 1.5, true,
		"", "a", "\"", "\\", "<", ">", "&", "\n", "\x7f", "ä", "\u2028", "\xff", strings.Repeat("x", 61), strings.Repeat("x", 62), strings.Repeat("x", 63), strings.Repeat("x", 1000),
		name("a"), struct{ A, B int }{1, 2}, []int{1}, map[string]int{"b": 1, "a": 2}, time.Unix(1, 2), json.RawMessage(`{"a": "<"}`),
	} {
		for range 2 { // a buffer is used again
			plain, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if sum, err := DigestOf(v); err != nil || sum != sha256.Sum256(plain) {
				t.Errorf("%T %.40v: not the digest of %.40s (%v)", v, v, plain, err)
			}
		}
	}
	for _, v := range []any{math.NaN(), func() {}, make(chan int)} {
		if _, err := DigestOf(v); err == nil {
			t.Errorf("%T has a digest", v)
		}
	}
}

func TestWhatCanBeShared(t *testing.T) {
	type plain struct {
		A int
		B [2]string
		C struct{ At time.Time }
		_ float64
		_ complex64
	}
	for _, v := range []any{1, "s", true, 1.5, uintptr(1), plain{}, [3]plain{}, [0]*int{}, time.Time{}, time.Second, struct{}{}} {
		if Shares(reflect.TypeOf(v)) {
			t.Errorf("%T can be shared", v)
		}
	}
	for _, v := range []any{
		new(int), []int{}, map[int]int{}, func() {}, make(chan int), unsafe.Pointer(nil), [1]any{}, json.RawMessage{},
		struct {
			plain
			E []byte
		}{}, struct{ e error }{}, [2][2]struct{ m map[int]int }{}, new(time.Time), struct{ At *time.Time }{},
	} {
		for range 2 { // it is remembered
			if !Shares(reflect.TypeOf(v)) {
				t.Errorf("%T cannot be shared", v)
			}
		}
	}
}
