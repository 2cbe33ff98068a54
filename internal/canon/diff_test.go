package canon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/wI2L/jsondiff"
	"pgregory.net/rapid"

	"github.com/weft-go/weft/internal/canon"
	"github.com/weft-go/weft/internal/torture"
)

func rfc8785(t interface{ Fatalf(string, ...any) }, data []byte) string {
	v := jsontext.Value(data).Clone()
	if err := v.Canonicalize(); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return string(v)
}

func compare(t interface{ Fatalf(string, ...any) }, a, b string, values bool) canon.Diff {
	return canon.Compare([]byte(canonical(t, a)), []byte(canonical(t, b)), values)
}

func encode(t interface{ Fatalf(string, ...any) }, v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("encode %v: %v", v, err)
	}
	return string(data)
}

func TestCompare(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{`{"a":1}`, `{"a":2}`, `[{"op":"replace","path":"/a","old":1,"value":2}]`},
		{`{"a":1}`, `{"a":null}`, `[{"op":"replace","path":"/a","old":1,"value":null}]`},
		{`{"a":null}`, `{}`, `[{"op":"remove","path":"/a","old":null}]`},
		{`{}`, `{"a":null}`, `[{"op":"add","path":"/a","value":null}]`},
		{`{"n":9007199254740992}`, `{"n":9007199254740993}`, `[{"op":"replace","path":"/n","old":9007199254740992,"value":9007199254740993}]`},
		{`1`, `[1]`, `[{"op":"replace","path":"","old":1,"value":[1]}]`},
		{`{"a":{"x":1}}`, `{"a":[1]}`, `[{"op":"replace","path":"/a","old":{"x":1},"value":[1]}]`},
		{`[1,2,3]`, `[1,5]`, `[{"op":"remove","path":"/2","old":3},{"op":"replace","path":"/1","old":2,"value":5}]`},
		{`[1,2,3,4]`, `[1,2]`, `[{"op":"remove","path":"/2","old":3},{"op":"remove","path":"/2","old":4}]`},
		{`[]`, `[1,{}]`, `[{"op":"add","path":"/-","value":1},{"op":"add","path":"/-","value":{}}]`},
		{`[[1],{}]`, `[[],{"a":0}]`, `[{"op":"remove","path":"/0/0","old":1},{"op":"add","path":"/1/a","value":0}]`},
		{`{"a/b":1,"c~d":1,"e\"\\\n":1,"<":1}`, `{"a/b":2,"c~d":2,"e\"\\\n":2,"<":"&"}`,
			`[{"op":"replace","path":"/\u003c","old":1,"value":"\u0026"},{"op":"replace","path":"/a~1b","old":1,"value":2},` +
				`{"op":"replace","path":"/c~0d","old":1,"value":2},{"op":"replace","path":"/e\"\\\n","old":1,"value":2}]`},
		{`{"😀":1,"\ue000":2}`, `{"\ue000":3}`, `[{"op":"replace","path":"/` + "\ue000" + `","old":2,"value":3},{"op":"remove","path":"/😀","old":1}]`},
		{`{"same":[1,{"x":[]}],"b":{"same":1,"c":{"d":[0,0,0,1]}}}`, `{"same":[1,{"x":[]}],"b":{"same":1,"c":{"d":[0,0,0,2]}}}`,
			`[{"op":"replace","path":"/b/c/d/3","old":1,"value":2}]`},
	} {
		d := compare(t, c.a, c.b, true)
		if got := encode(t, d.Changes); got != c.want || d.Truncated || d.Bytes != len(got) {
			t.Errorf("from %s to %s: %s, %d bytes, truncated %v\nwant %s, %d bytes", c.a, c.b, got, d.Bytes, d.Truncated, c.want, len(c.want))
		}
		without := compare(t, c.a, c.b, false)
		for i := range d.Changes {
			d.Changes[i].Old, d.Changes[i].Value = nil, nil
		}
		if diff := cmp.Diff(d.Changes, without.Changes); diff != "" || without.Bytes != len(encode(t, without.Changes)) {
			t.Errorf("from %s to %s, without values: %d bytes\n%s", c.a, c.b, without.Bytes, diff)
		}
		if same := compare(t, c.a, c.a, true); same.Changes != nil || same.Bytes != 0 || same.Truncated {
			t.Errorf("%s differs from itself: %+v", c.a, same)
		}
	}
}

// The changes make the second document of the first, and are those of jsondiff for the whole
// documents.
func TestChangesApply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t, 4)
		a := canonical(t, spell(n, 1))
		b := canonical(t, spell(altered(t, n, 4), 1))
		d := canon.Compare([]byte(a), []byte(b), true)
		if (d.Bytes == 0) != (a == b) {
			t.Fatalf("from %s to %s: %d bytes", a, b, d.Bytes)
		}
		if a == b || d.Truncated {
			return
		}
		if got := encode(t, d.Changes); d.Bytes != len(got) {
			t.Fatalf("%s has %d bytes, not %d", got, len(got), d.Bytes)
		}
		if got := canonical(t, encode(t, applied(t, a, d.Changes))); got != b {
			t.Fatalf("from %s to %s: %s makes %s", a, b, encode(t, d.Changes), got)
		}
		patch, err := jsondiff.CompareJSON([]byte(a), []byte(b), jsondiff.UnmarshalFunc(exact))
		if err != nil {
			t.Fatalf("jsondiff: %v", err)
		}
		var got, want []string
		for _, c := range d.Changes {
			got = append(got, c.Op+" "+c.Path)
		}
		for _, op := range patch {
			if op.Path == "" {
				op.Type = "replace" // jsondiff says add if the kind of the document changes
			}
			want = append(want, op.Type+" "+op.Path)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("from %s to %s:\n%s", a, b, diff)
		}
	})
}

func exact(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}

// altered changes some of what is in a document.
func altered(t *rapid.T, n node, depth int) node {
	if rapid.IntRange(0, 5).Draw(t, "other") == 0 {
		return drawNode(t, depth)
	}
	switch n := n.(type) {
	case []node:
		var out []node
		for _, e := range n {
			out = append(out, altered(t, e, depth-1))
		}
		if len(out) > 0 && rapid.IntRange(0, 3).Draw(t, "shorter") == 0 {
			out = out[:len(out)-1]
		}
		return out
	case members:
		var out members
		for _, m := range n {
			if rapid.IntRange(0, 4).Draw(t, "without") > 0 {
				m.value = altered(t, m.value, depth-1)
				out = append(out, m)
			}
		}
		return out
	}
	return n
}

// applied is what RFC 6902 makes of a document.
func applied(t *rapid.T, doc string, changes []canon.Change) any {
	var v any
	if err := exact([]byte(doc), &v); err != nil {
		t.Fatalf("%v", err)
	}
	for _, c := range changes {
		var value any
		if c.Value != nil {
			if err := exact(c.Value, &value); err != nil {
				t.Fatalf("%v", err)
			}
		}
		v = apply(t, v, split(c.Path), c.Op, value)
	}
	return v
}

func split(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")[1:]
}

func apply(t *rapid.T, v any, path []string, op string, value any) any {
	if len(path) == 0 {
		return value
	}
	name := strings.NewReplacer("~1", "/", "~0", "~").Replace(path[0])
	last := len(path) == 1
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v[name]; ok == (last && op == "add") {
			t.Fatalf("%s of member %q: there is one: %v", op, name, ok)
		}
		if last && op == "remove" {
			delete(v, name)
		} else {
			v[name] = apply(t, v[name], path[1:], op, value)
		}
		return v
	case []any:
		if last && op == "add" && name == "-" {
			return append(v, value)
		}
		i, err := strconv.Atoi(name)
		if err != nil || i >= len(v) {
			t.Fatalf("%s of element %q of %d", op, name, len(v))
		}
		if last && op == "remove" {
			return append(v[:i:i], v[i+1:]...)
		}
		v[i] = apply(t, v[i], path[1:], op, value)
		return v
	}
	t.Fatalf("path %q leads into %v", path, v)
	return nil
}

// Adds is true for what has all of another document, wherever it is, and for nothing else.
func TestAdds(t *testing.T) {
	deep := func(inside string) string { return strings.Repeat(`[{"a":`, 500) + inside + strings.Repeat(`}]`, 500) }
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`{"a":1}`, `{"a":1}`, true},
		{`{"b":1}`, `{"a":0,"b":1,"c":2}`, true},
		{`{}`, `{"a":1}`, true},
		{`[{"a":1},{"a":2}]`, `[{"a":1,"b":0},{"a":2,"b":{"c":[]}}]`, true},
		{`[1]`, `[1,2,3]`, true},
		{`{"a":{"b":[]},"c":1}`, `{"a":{"b":[[1,2],{"x":3}],"d":0},"c":1}`, true},
		{deep(`{}`), deep(`{"b":1}`), true},
		{`{"a":1,"b":2}`, `{"a":1}`, false},
		{`{"a":1}`, `{"b":1}`, false},
		{`{"a":1}`, `{"a":2,"b":1}`, false},
		{`[1,2]`, `[1]`, false},
		{`[1,2]`, `[2,1]`, false},
		{`[1]`, `[0,1]`, false},
		{`{"a":[1,2],"b":1}`, `{"a":[1],"b":1}`, false},
		{`{}`, `[]`, false},
		{`{"a":null}`, `{"a":{"b":1}}`, false},
		{`"a"`, `"ab"`, false},
		{deep(`1`), deep(`2`), false},
	} {
		if got := canon.Adds([]byte(c.a), []byte(c.b)); got != c.want {
			t.Errorf("%.40s to %.40s: got %t", c.a, c.b, got)
		}
	}
}

func TestLimits(t *testing.T) {
	many := func(n int, value string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%05d":%s`, i, value)
		}
		return "{" + strings.TrimPrefix(b.String(), ",") + "}"
	}
	long := `"` + strings.Repeat("x", 9000) + `"`
	nested := func(n int, inner string) string {
		return strings.Repeat(`{"a":`, n) + inner + strings.Repeat("}", n)
	}
	const one = len(`{"op":"replace","path":"/00000"},`)
	for _, c := range []struct {
		name      string
		a, b      string
		values    bool
		changes   int
		bytes     int
		truncated bool
	}{
		{"100 changes", many(100, "1"), many(100, "2"), false, 100, 100*one + 1, false},
		{"101 changes", many(101, "1"), many(101, "2"), false, 100, 101*one + 1, true},
		{"a value without room", `{"a":1,"b":1}`, `{"a":` + long + `,"b":2}`, true, 2, len(`[{"op":"replace","path":"/a","old":1,"value":},{"op":"replace","path":"/b","old":1,"value":2}]`) + len(long), true},
		{"a path without room", `{` + long + `:1,"a":1}`, `{` + long + `:2,"a":2}`, false, 1, len(`[{"op":"replace","path":"/"},{"op":"replace","path":"/a"}]`) + len(long) - 2, true},
		{"a path that just fits", `{"` + strings.Repeat("x", 8164) + `":1}`, `{}`, false, 1, 8192, false},
		{"a path that just does not", `{"` + strings.Repeat("x", 8165) + `":1}`, `{}`, false, 0, 8193, true},
		{"too deep", nested(40, "1"), nested(40, "2"), false, 1, len(`[{"op":"replace","path":""}]`) + 2*canon.MaxDepth, false},
	} {
		d := compare(t, c.a, c.b, c.values)
		if len(d.Changes) != c.changes || d.Bytes != c.bytes || d.Truncated != c.truncated {
			t.Errorf("%s: %d changes, %d bytes, truncated %v; want %d, %d, %v", c.name, len(d.Changes), d.Bytes, d.Truncated, c.changes, c.bytes, c.truncated)
		}
		if n := len(encode(t, d.Changes)); n > canon.MaxBytes {
			t.Errorf("%s: %d bytes", c.name, n)
		}
	}
}

// hostile are documents of about 1 MiB that are bad for naive comparisons.
func hostile() map[string][2]string {
	object := func(value string) string {
		var b strings.Builder
		for i := range 100_000 {
			fmt.Fprintf(&b, `,"%06d":%s`, i, value)
		}
		return "{" + b.String()[1:] + "}"
	}
	array := func(n int, value string) string { return "[" + strings.Repeat(value+",", n-1) + value + "]" }
	around := func(n int, open, inner, end string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	name := strings.Repeat("n", 500_000)
	return map[string][2]string{
		"100,000 members differ":             {object("1"), object("2")},
		"100,000 members removed":            {object("1"), "{}"},
		"50,000 elements differ":             {array(50_000, `"one two three"`), array(50_000, `"four five six"`)},
		"500,000 elements appended":          {"[]", array(500_000, "1")},
		"the last of 500,000 elements":       {array(500_000, "1"), strings.TrimSuffix(array(500_000, "1"), "1]") + "2]"},
		"the same in 31 arrays":              {around(31, "[", array(500_000, "1"), "]"), around(31, "[", strings.TrimSuffix(array(500_000, "1"), "1]")+"2]", "]")},
		"10,000 levels, then the elements":   {around(9_999, `{"a":`, array(450_000, "1"), "}"), around(9_999, `{"a":`, array(450_000, "2"), "}")},
		"10,000 levels of two members":       {around(9_999, `{"b":`, array(400_000, "1"), `,"a":1}`), around(9_999, `{"b":`, array(400_000, "2"), `,"a":2}`)},
		"a name of 500,000, then elements":   {`{"` + name + `":` + array(250_000, "1") + `}`, `{"` + name + `":` + array(250_000, "2") + `}`},
		"names with escapes, in bad order":   {strings.ReplaceAll(object("1"), `"0`, `"\\0`), strings.ReplaceAll(object("2"), `"0`, `"\n0`)},
		"31 levels, 20,000 elements a level": {around(31, "["+strings.Repeat("1,", 17_000), "1", "]"), around(31, "["+strings.Repeat("1,", 17_000), "2", "]")},
	}
}

// What a hostile client sends costs less than 100 ms and 20 MiB to compare on an idle machine,
// and less than 150 ms and 65 MiB a document before that. The limits for the time leave room for
// a machine that is not idle.
func TestHostile(t *testing.T) {
	notRaced(t)
	const slow = 10 * time.Second
	for name, docs := range hostile() {
		t.Run(name, func(t *testing.T) {
			var a, b []byte
			took, allocated := cost(func() {
				a, b = []byte(canonical(t, docs[0])), []byte(canonical(t, docs[1]))
			})
			t.Logf("canonical: %v, %.1f MiB for %d + %d bytes", took, allocated, len(a), len(b))
			if took > slow || allocated > 160 {
				t.Errorf("canonical: %v, %.1f MiB", took, allocated)
			}
			for _, values := range []bool{false, true} {
				var d canon.Diff
				took, allocated = cost(func() { d = canon.Compare(a, b, values) })
				t.Logf("compare: %v, %.1f MiB; %d changes, %d bytes", took, allocated, len(d.Changes), d.Bytes)
				if took > slow || allocated > 64 {
					t.Errorf("compare: %v, %.1f MiB", took, allocated)
				}
				if n := len(encode(t, d.Changes)); d.Bytes == 0 || n > canon.MaxBytes {
					t.Errorf("%d changes have %d bytes, of %d in all", len(d.Changes), n, d.Bytes)
				}
			}
		})
	}
}

// notRaced skips a test of time and allocations, which are others with the race detector.
func notRaced(t *testing.T) {
	if torture.Raced() {
		t.Skip("the race detector changes what is measured")
	}
}

// cost returns the time of f, and how many MiB it allocates.
func cost(f func()) (time.Duration, float64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	f()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return took, float64(after.TotalAlloc-before.TotalAlloc) / (1 << 20)
}

// Compare is for canonical documents, but others do not make it panic or run on.
func FuzzCompare(f *testing.F) {
	f.Add([]byte(`{"a":[1,2],"b":{"c":1}}`), []byte(`{"a":[1],"b":[]}`))
	f.Add([]byte(`{"a`), []byte(`{"a":`))
	f.Add([]byte(`{"a":1,"a":{"b":1}}`), []byte(`{"a":2,"a":{"b":2}}`))
	f.Add([]byte("[\x00]"), []byte(`[1,,:}]"\`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		canon.Compare(a, b, true)
		ca, err := canon.JSON(a)
		if err != nil {
			return
		}
		cb, err := canon.JSON(b)
		if err != nil {
			return
		}
		d := canon.Compare(ca, cb, true)
		if n := len(encode(t, d.Changes)); (d.Bytes == 0) != bytes.Equal(ca, cb) || n > canon.MaxBytes || !d.Truncated && d.Bytes > 0 && d.Bytes != n {
			t.Fatalf("from %s to %s: %+v", ca, cb, d)
		}
	})
}

// kilobyte is a request of 1 KiB, as clients send it.
func kilobyte() []byte {
	item := `{"sku": "A-10%02d", "name": "Garden chair, white \u2013 %d", "quantity": %d, "price": {"currency": "EUR", "amount": 19.%02d}}`
	var items []string
	for i := range 7 {
		items = append(items, fmt.Sprintf(item, i, i, i+1, i*7))
	}
	return []byte(`{"order_id": "ord_01HZX3", "customer": {"id": 4711, "email": "ann@example.com"}, "express": true, "note": null, "items": [` + strings.Join(items, ", ") + `], "total": 1033.5}`)
}

func BenchmarkJSON(b *testing.B) {
	request := kilobyte()
	ordered, err := canon.JSON(request)
	if err != nil {
		b.Fatal(err)
	}
	large := []byte("[" + strings.Repeat(string(request)+",", 999) + string(request) + "]")
	for name, data := range map[string][]byte{"1KiB": request, "1KiB-canonical": ordered, "1MiB": large} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := canon.JSON(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFingerprint(b *testing.B) {
	data := kilobyte()
	b.ReportAllocs()
	for b.Loop() {
		canon.Fingerprint(data)
	}
}

func BenchmarkCompare(b *testing.B) {
	x := []byte(canonical(b, string(kilobyte())))
	y := bytes.Replace(x, []byte("4711"), []byte("4712"), 1)
	b.ReportAllocs()
	for b.Loop() {
		canon.Compare(x, y, true)
	}
}

// The allocations do not grow with the number of members: they are the result, and one for
// each of the seven strings that jsontext does not call simple.
func TestAllocations(t *testing.T) {
	notRaced(t)
	data := kilobyte()
	if n := testing.AllocsPerRun(200, func() { _, _ = canon.JSON(data) }); n > 8 {
		t.Errorf("canon.JSON allocates %v times, want at most 8", n)
	}
}
