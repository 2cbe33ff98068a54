package cbor_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	fxcbor "github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft/codec/cbor"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

var _ engine.Codec = cbor.Codec

type (
	// A tint has a number as JSON, and a name as text.
	tint int
	// A level has only a text.
	level struct{ name string }
	// A point has only JSON.
	point struct{ x, y int }
	// An item has a field for each way in which a value may be encoded.
	item struct {
		Name   string            `json:"name"`
		At     time.Time         `json:"at"`
		Data   []byte            `json:"data"`
		Hash   [4]byte           `json:"hash"`
		Count  int64             `json:"count"`
		Large  uint64            `json:"large"`
		Huge   *big.Int          `json:"huge"`
		Price  float64           `json:"price"`
		Addr   netip.Addr        `json:"addr"`
		Where  point             `json:"where"`
		Labels map[string]string `json:"labels,omitempty"`
		ByNum  map[int]string    `json:"byNum,omitempty"`
		Any    any               `json:"any"`
		Raw    json.RawMessage   `json:"raw"`
		Next   *item             `json:"next,omitempty"`
		Left   func()            `json:"-"`
	}
	tinted  struct{ Tint tint }
	leveled struct {
		Tint  tint
		Level level
		When  time.Time
	}
)

func (c tint) MarshalJSON() ([]byte, error)  { return fmt.Append(nil, int(c)), nil }
func (c *tint) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, (*int)(c)) }
func (c tint) MarshalText() ([]byte, error)  { return fmt.Appendf(nil, "tint %d", int(c)), nil }
func (c *tint) UnmarshalText(b []byte) error {
	_, err := fmt.Sscanf(string(b), "tint %d", c)
	return err
}
func (l level) MarshalText() ([]byte, error)     { return []byte(l.name), nil }
func (l *level) UnmarshalText(text []byte) error { l.name = string(text); return nil }
func (p point) MarshalJSON() ([]byte, error)     { return json.Marshal([]int{p.x, p.y}) }
func (p *point) UnmarshalJSON(b []byte) error {
	var xy [2]int
	err := json.Unmarshal(b, &xy)
	p.x, p.y = xy[0], xy[1]
	return err
}

var noon = time.Date(2026, 11, 26, 12, 30, 15, 123456789, time.FixedZone("", 3600))

func whole() item {
	return item{
		Name: "a\xff\u00e9", At: noon, Data: []byte{0, 1, 255}, Hash: [4]byte{1, 2, 3, 4}, Count: math.MinInt64, Large: math.MaxUint64,
		Huge: new(big.Int).Lsh(big.NewInt(1), 100), Price: 0.1, Addr: netip.MustParseAddr("10.0.0.1"), Where: point{1, 2},
		Labels: map[string]string{"a": "b", "c": "d"}, ByNum: map[int]string{3: "x"},
		Any: map[string]any{"t": noon, "b": []byte{7}, "n": int64(5), "l": []any{"x", nil, true}}, Raw: json.RawMessage(`{"n":0.10}`),
		Next: &item{Data: []byte{}, Raw: json.RawMessage("null")},
	}
}

// examples are one value for each way in which something is encoded.
var examples = []struct {
	name  string
	value any
}{
	{"nil", (*item)(nil)},
	{"text", "h\u00e9llo"},
	{"text-that-is-no-utf8", "\xff"},
	{"bytes", []byte{0, 1, 255}},
	{"no-bytes", []byte(nil)},
	{"array-of-bytes", [3]byte{1, 2, 3}},
	{"time", noon},
	{"time-utc", noon.UTC()},
	{"no-time", time.Time{}},
	{"integer", -7},
	{"float", 0.1},
	{"not-a-number", math.Inf(-1)},
	{"large-integer", new(big.Int).Lsh(big.NewInt(-1), 90)},
	{"raw-json", json.RawMessage(`{"at":"2026-11-26T12:30:15Z","data":"AAH/"}`)},
	{"own-json", point{3, 4}},
	{"own-text", level{"high"}},
	{"own-json-and-text", tinted{3}},
	{"own-json-and-text-and-only-text", leveled{3, level{"high"}, noon}},
	{"keys", map[netip.Addr]level{netip.MustParseAddr("::1"): {"low"}}},
	{"struct", whole()},
}

// equal compares as == does what has an own Equal, and times by instant and zone.
var equal = []cmp.Option{
	cmp.AllowUnexported(level{}, point{}),
	cmp.Comparer(func(a, b *big.Int) bool { return a == b || a != nil && b != nil && a.Cmp(b) == 0 }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b time.Time) bool {
		_, x := a.Zone()
		_, y := b.Zone()
		return a.Equal(b) && x == y
	}),
}

// WLD-62: what is encoded is CBOR, and is decoded as it was. The same value has the same bytes, which
// testdata/v1 has: what a release has stored, every later one reads.
func TestValuesComeBack(t *testing.T) {
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			data, err := cbor.Codec.Encode(t.Context(), e.value)
			if err != nil {
				t.Fatal(err)
			}
			if err := fxcbor.Wellformed(data); err != nil {
				t.Fatalf("%x is no CBOR: %v", data, err)
			}
			file := filepath.Join("testdata", "v1", e.name+".hex")
			golden, err := os.ReadFile(file)
			if os.IsNotExist(err) {
				t.Fatalf("%s is not there: it should have\n%s", file, hex.EncodeToString(data))
			}
			if got := hex.EncodeToString(data) + "\n"; got != string(golden) {
				t.Errorf("got %swant %s", got, golden)
			}
			stored, err := hex.DecodeString(strings.TrimSpace(string(golden)))
			if err != nil {
				t.Fatal(err)
			}
			back := reflect.New(reflect.TypeOf(e.value))
			if err := cbor.Codec.Decode(t.Context(), stored, back.Interface()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(e.value, back.Elem().Interface(), equal...); diff != "" {
				t.Errorf("it did not come back (-want +got):\n%s", diff)
			}
		})
	}
	files, err := filepath.Glob("testdata/v1/*.hex")
	if err != nil || len(files) != len(examples) {
		t.Errorf("%d golden files, %d examples, %v", len(files), len(examples), err)
	}
}

// WLD-63: times and bytes are those of CBOR, for who reads it without Go's types, and in a value of type any.
func TestTimesAndBytesAreNative(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string // in the diagnostic notation of RFC 8949
		any   any
	}{
		{noon, `0("2026-11-26T12:30:15.123456789+01:00")`, noon},
		{[]byte{0, 1, 255}, `h'0001ff'`, []byte{0, 1, 255}},
		{[2]byte{1, 2}, `h'0102'`, []byte{1, 2}},
		{int64(math.MinInt64), `-9223372036854775808`, int64(math.MinInt64)},
		{math.NaN(), `NaN`, nil}, // NaN is not equal to itself
		{struct {
			At   time.Time `json:"at"`
			Data []byte    `json:"data"`
		}{noon, []byte{9}}, `{"at": 0("2026-11-26T12:30:15.123456789+01:00"), "data": h'09'}`, map[string]any{"at": noon, "data": []byte{9}}},
	} {
		data, err := cbor.Codec.Encode(t.Context(), c.value)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := fxcbor.Diagnose(data); got != c.want || err != nil {
			t.Errorf("%v is %s, %v; want %s", c.value, got, err, c.want)
		}
		var v any
		if err := cbor.Codec.Decode(t.Context(), data, &v); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(c.any, v, equal...); c.any != nil && diff != "" {
			t.Errorf("in an any (-want +got):\n%s", diff)
		}
	}
}

// What comes as JSON is decoded as JSON, whatever type its receiver has, and raw JSON can be asked for.
func TestRawJSON(t *testing.T) {
	raw := json.RawMessage(`{"name":"x","at":"2026-11-26T12:30:15Z","data":"AAH/","hash":[1,2,3,4],"byNum":{"3":"y"},"where":[1,2],"huge":7,"price":0.10}`)
	data, err := cbor.Codec.Encode(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	var got, want item
	if err := cbor.Codec.Decode(t.Context(), data, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, equal...); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	if data, err = cbor.Codec.Encode(t.Context(), map[string]any{"n": 1, "at": noon.UTC()}); err != nil {
		t.Fatal(err)
	}
	var asked json.RawMessage
	if err := cbor.Codec.Decode(t.Context(), data, &asked); err != nil || string(asked) != `{"at":"2026-11-26T11:30:15.123456789Z","n":1}` {
		t.Errorf("got %s, %v", asked, err)
	}
	var p point
	if data, err = cbor.Codec.Encode(t.Context(), []int{5, 6}); err != nil {
		t.Fatal(err)
	}
	if err := cbor.Codec.Decode(t.Context(), data, &p); err != nil || p != (point{5, 6}) {
		t.Errorf("a type that has got an UnmarshalJSON since: %v, %v", p, err)
	}
}

type named string

func (n named) MarshalJSON() ([]byte, error) { return json.Marshal("named " + string(n)) }

// WLD-62: what JSON keeps in a value of type any, CBOR keeps: JSON, the same one of several methods, and keys as text.
func TestAnyIsThatOfJSON(t *testing.T) {
	type rgb struct {
		R int            `cbor:"1,keyasint" json:"1"`
		S map[int]string `json:"s"`
	}
	type typed struct {
		Tool  string          `json:"tool"`
		Args  json.RawMessage `json:"args"`
		Tint  tint            `json:"tint"`
		ByNum map[int]string  `json:"byNum"`
		Any   any             `json:"any"`
	}
	raw := json.RawMessage(`{"l":[{"a":1}],"n":0.10}`)
	for name, v := range map[string]any{
		"raw JSON":             map[string]any{"x": raw},
		"raw JSON in a list":   []any{[]any{raw}, "x"},
		"own JSON":             map[string]any{"x": &point{1, 2}},
		"JSON and text":        map[string]any{"x": tint(3)},
		"JSON and text, below": map[string]any{"x": []tinted{{3}}},
		"and text alone":       map[string]any{"x": tint(3), "y": level{"high"}},
		"and text of the type": struct{ A, B any }{tinted{3}, leveled{4, level{"low"}, noon}},
		"keys are integers":    map[string]any{"x": map[int]any{-3: map[uint64]string{math.MaxUint64: "y"}}},
		"keys have a text":     map[string]any{"x": map[netip.Addr]int{netip.MustParseAddr("::1"): 1}},
		"keys have JSON":       map[string]any{"x": map[named]int{"y": 1}},
		"keys have both":       map[string]any{"x": map[tint]int{3: 1}},
		"fields are integers":  map[string]any{"x": rgb{1, map[int]string{2: "b"}}},
		"typed":                typed{"t", raw, 3, map[int]string{3: "y"}, map[string]any{"r": raw}},
	} {
		data, err := cbor.Codec.Encode(t.Context(), v)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var want, got any
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		if err := cbor.Codec.Decode(t.Context(), data, &got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got, numbers); diff != "" {
			t.Errorf("%s, as an any (-want +got):\n%s", name, diff)
		}
		var asked json.RawMessage
		if err := cbor.Codec.Decode(t.Context(), data, &asked); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(numbered(t, text), numbered(t, asked)); diff != "" {
			t.Errorf("%s, as JSON (-want +got):\n%s", name, diff)
		}
	}

	// So it is where an any is a part of the type.
	type part struct {
		List []any
		Map  map[string]struct{ V any }
		Next *part
		Left any `json:"-"`
	}
	want := part{List: []any{raw}, Map: map[string]struct{ V any }{"k": {raw}}, Next: &part{List: []any{map[int]any{1: raw}}}}
	got := part{Left: "as it was"}
	again(t, want, &got)
	back, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(back) != strings.ReplaceAll(string(text), "0.10", "0.1") || got.Left != "as it was" {
		t.Errorf("got %s, want %s", back, text)
	}
}

// numbers compares integers, as CBOR has them in an any, with those of JSON.
var numbers = cmp.FilterValues(func(a, b any) bool { return isNumber(a) && isNumber(b) },
	cmp.Comparer(func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) }))

func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64:
		return true
	}
	return false
}

// numbered decodes JSON, with its numbers as they are written.
func numbered(t *testing.T, text []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Error(err)
	}
	return v
}

// WLD-62: what could not be decoded is not encoded, nor what contains itself, which would end the process.
func TestEncodeRefuses(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(32 << 20)) // what has no end ends soon
	type node struct{ Next *node }
	circle := &node{}
	circle.Next = circle
	type ring []ring
	round := make(ring, 1)
	round[0] = round
	type loop *loop
	var self loop
	self = &self
	var inAny any
	inAny = []any{&inAny}
	for name, v := range map[string]any{
		"a circle of pointers": circle,
		"a circle of slices":   round,
		"a pointer to itself":  self,
		"a circle of any":      inAny,
		"a year above 9999":    time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC),
		"a year in a struct":   item{At: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"keys in an any":       item{Any: map[bool]string{true: "x"}},
		"invalid JSON":         json.RawMessage(`{`),
		"a channel":            make(chan int),
	} {
		if data, err := cbor.Codec.Encode(t.Context(), v); err == nil {
			t.Errorf("%s: encoded as %.40x", name, data)
		}
	}
}

// A list of ten thousand elements, each in the one before, is no circle; nor are 200,000 numbers too many.
func TestLargeValues(t *testing.T) {
	type node struct {
		N    int
		Next *node
	}
	var list *node
	for n := range 10_000 {
		list = &node{n, list}
	}
	var got *node
	again(t, list, &got)
	depth := 0
	for n := got; n != nil; n = n.Next {
		depth++
	}
	if depth != 10_000 {
		t.Errorf("got %d elements", depth)
	}

	many := make([]int, 200_000)
	for i := range many {
		many[i] = i
	}
	var numbers []int
	if again(t, many, &numbers); !slices.Equal(many, numbers) {
		t.Errorf("got %d other numbers", len(numbers))
	}
}

func again(t *testing.T, v, into any) {
	t.Helper()
	data, err := cbor.Codec.Encode(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	if err := cbor.Codec.Decode(t.Context(), data, into); err != nil {
		t.Fatal(err)
	}
}

// engine.New refuses a workflow whose input or result has a part that is not stored.
func TestLossyTypesAreRefused(t *testing.T) {
	type hidden struct{ Name, secret string }
	_ = hidden{}.secret
	w := &engine.Workflow[hidden, string]{Name: "w", Func: func(*engine.Run, hidden) (string, error) { return "", nil }}
	_, err := engine.New(engine.Config{Storage: new(memory.Store), Codec: cbor.Codec, Workflows: []engine.Definition{w}})
	if err == nil || !strings.Contains(err.Error(), "secret is not exported") {
		t.Errorf("New: %v", err)
	}
}

// Damaged bytes, and those of another codec, are an error.
func TestDecodeRefuses(t *testing.T) {
	for _, data := range []string{"", "\xd9\x01\x06", "\xd9\x01\x06\x41{", "\xa1", "\x01\x02", `{"name":"x"}`, `"x"`} {
		var v item
		if err := cbor.Codec.Decode(t.Context(), []byte(data), &v); err == nil {
			t.Errorf("%q was decoded as %+v", data, v)
		}
	}
	for _, data := range []string{
		"\x81\xd9\x01\x06\x41{",           // JSON that is damaged
		"\xa2\x01\x61a\x611\x61b",         // the key 1 as a number and as a text
		"\x81\xa1\xf5\x61a",               // the key true
		"\x81\xc9\xa2\x01\x61a\x611\x61b", // in a tag
	} {
		for _, v := range []any{new(any), new([]any), new(map[string]any), new(json.RawMessage)} {
			if err := cbor.Codec.Decode(t.Context(), []byte(data), v); err == nil {
				t.Errorf("%q was decoded as %v", data, reflect.ValueOf(v).Elem())
			}
		}
	}
}

// Whatever bytes come, they are an error or a value that can be encoded and decoded again.
func FuzzDecode(f *testing.F) {
	for _, e := range examples {
		data, err := cbor.Codec.Encode(f.Context(), e.value)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, into := range []any{new(any), new(item), new(leveled)} {
			if cbor.Codec.Decode(t.Context(), data, into) != nil {
				continue
			}
			first, err := cbor.Codec.Encode(t.Context(), into)
			if err != nil {
				continue // such as a number that only JSON can have
			}
			back := reflect.New(reflect.TypeOf(into).Elem()).Interface()
			if err := cbor.Codec.Decode(t.Context(), first, back); err != nil {
				t.Fatalf("%x was decoded as %+v, which is encoded as %x: %v", data, into, first, err)
			}
		}
	})
}
