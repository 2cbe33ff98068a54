package canon_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"math/rand"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/weft-go/weft/internal/canon"
)

func canonical(t interface{ Fatalf(string, ...any) }, doc string) string {
	got, err := canon.JSON([]byte(doc))
	if err != nil {
		t.Fatalf("canon.JSON(%.200q): %v", doc, err)
	}
	return string(got)
}

// The canonical form of documents.
func TestJSON(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		// numbers
		{`[1, 1.0, 1e0, 10e-1, 0.1E+1, 1E-0]`, `[1,1,1,1,1,1]`},
		{`[9007199254740992, 9007199254740993, 9007199254740993.0]`, `[9007199254740992,9007199254740993,9007199254740993]`},
		{`[0, -0, 0.0, -0.00, 0e99999999999999999999, -0e-5]`, `[0,0,0,0,0,0]`},
		{`[-1, -1.50, 100, 1e2, 0.001, 1e-3]`, `[-1,-1.5,100,100,0.001,0.001]`},
		{`[1e20, 1e21, 123456789012345678901, 1234567890123456789012]`, `[100000000000000000000,1e+21,123456789012345678901,1.234567890123456789012e+21]`},
		{`[-123456789012345678901, -1000000000000000000000]`, `[-123456789012345678901,-1e+21]`},
		{`[0.000001, 0.0000001, 1.5e-7, 12.5e-6]`, `[0.000001,1e-7,1.5e-7,0.0000125]`},
		{`[1e9999, -1e-9999, 0.1e10000, 99990e9995, 1000e-10002]`, `[1e+9999,-1e-9999,1e+9999,9.999e+9999,1e-9999]`},
		{`[0.1000000000000000055511151231257827, 0.1]`, `[0.1000000000000000055511151231257827,0.1]`},
		// strings
		{`["\u0041\/\u00e9\ud83d\ude00", "A/é😀"]`, `["A/é😀","A/é😀"]`},
		{`"\u0008\u0009\u000a\u000c\u000d\u001F\u0022\u005c\u007f\u2028"`, "\"\\b\\t\\n\\f\\r\\u001f\\\"\\\\\u007f\u2028\""},
		{`["é", "e\u0301", "<&>"]`, "[\"é\",\"e\u0301\",\"<&>\"]"},
		// structure
		{" \t\r\n{ \"b\" : [ 1 , { } , [ ] ] , \"a\" : null } \n", `{"a":null,"b":[1,{},[]]}`},
		{`[[3,1,2],true,false,null,"",{}]`, `[[3,1,2],true,false,null,"",{}]`},
		{`{"":0," ":1}`, `{"":0," ":1}`},
		{`{"b":{"d":1,"c":{"f":{},"e":2}},"a":[{"z":1,"y":2},{"x":{"w":0,"v":9}}]}`, `{"a":[{"y":2,"z":1},{"x":{"v":9,"w":0}}],"b":{"c":{"e":2,"f":{}},"d":1}}`},
		{`{"a":{"b":1,"a":2},"b":[{"b":1,"a":2}],"c":0}`, `{"a":{"a":2,"b":1},"b":[{"a":2,"b":1}],"c":0}`},
		{`{"aa":1,"a":2,"\u0061b":3}`, `{"a":2,"aa":1,"ab":3}`},
		// the order of UTF-16 is neither that of bytes nor that of escapes
		{`{"\ue000":1,"😀":2,"é":3,"z":4}`, `{"z":4,"é":3,"😀":2,"` + "\ue000" + `":1}`},
		{`{"\\":1,"\"":2,"\n":3,"0":4,"[":5}`, `{"\n":3,"\"":2,"0":4,"[":5,"\\":1}`},
		{"{\"\uffff\":1,\"\U0010ffff\":2,\"\U00010000\":3,\"\ud7ff\":4}", "{\"\ud7ff\":4,\"\U00010000\":3,\"\U0010ffff\":2,\"\uffff\":1}"},
	} {
		if got := canonical(t, c.doc); got != c.want {
			t.Errorf("canon.JSON(%s) = %s, want %s", c.doc, got, c.want)
		}
	}
}

// RFC 8785, sections 3.2.2 and 3.2.3: its examples, in our values.
func TestRFC8785(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{
			`{
			  "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
			  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
			  "literals": [null, true, false]
			}`,
			`{"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`, // the first number is exact
		},
		{
			`{
			  "\u20ac": "Euro Sign",
			  "\r": "Carriage Return",
			  "\ufb33": "Hebrew Letter Dalet With Dagesh",
			  "1": "One",
			  "\ud83d\ude00": "Emoji: Grinning Face",
			  "\u0080": "Control",
			  "\u00f6": "Latin Small Letter O With Diaeresis"
			}`,
			`{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`,
		},
	} {
		if got := canonical(t, c.doc); got != c.want {
			t.Errorf("canon.JSON(%s) = %s, want %s", c.doc, got, c.want)
		}
	}
}

func TestDifferentDocuments(t *testing.T) {
	for _, c := range [][2]string{
		{`9007199254740992`, `9007199254740993`},
		{`{"a":null}`, `{}`},
		{`[1,2]`, `[2,1]`},
		{`1`, `"1"`},
		{`"é"`, `"e\u0301"`},
		{`0.1`, `0.1000000000000000055511151231257827`},
		{`1`, `-1`},
		{`{"a":{"b":1}}`, `{"a":{},"b":1}`},
	} {
		if a, b := canonical(t, c[0]), canonical(t, c[1]); a == b {
			t.Errorf("%s and %s have the same canonical form %s", c[0], c[1], a)
		}
	}
}

func TestInvalid(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		doc    string
		offset int64
		path   string
		has    string
	}{
		{``, 0, "", "unexpected EOF"},
		{" \n", 2, "", "unexpected EOF"},
		{`{"a":1`, 6, "", "unexpected EOF"},
		{`{"a":[1,2,{"b":nul}]}`, 18, "/a/2/b", "invalid character"},
		{`{"a":1,"b":{"c":1,"\u0063":2}}`, 18, "/b/c", "duplicate"},
		{`{"a":1,"a":1}`, 7, "/a", "duplicate"},
		{`["\ud800"]`, 2, "/0", "surrogate"},
		{`["\ude00\ud83d"]`, 2, "/0", "surrogate"},
		{"[0,\"\xff\"]", 4, "/1", "invalid UTF-8"},
		{"{\"\xed\xa0\x80\":1}", 2, "", "invalid UTF-8"},
		{`1 2`, 2, "", "after the value"},
		{`{} x`, 3, "", "after the value"},
		{`{},`, 2, "", "after the value"},
		{`01`, 1, "", "after the value"},
		{`[01]`, 2, "", "invalid character"},
		{`[+1]`, 1, "/0", "invalid character"},
		{`[.5]`, 1, "/0", "invalid character"},
		{`NaN`, 0, "", "invalid character"},
		{"\ufeff1", 0, "", "invalid character"},
		{"[\"a\tb\"]", 3, "/0", "invalid character"},
		{`[1,]`, 2, "", "invalid character"},
		{`{"a":1e10000}`, 5, "/a", "exponent"},
		{`[1, -1e-10000]`, 4, "/1", "exponent"},
		{`[0.1e10001]`, 1, "/0", "exponent"},
		{`1e99999999999999999999`, 0, "", "exponent"},
		{`1e-9223372036854775808`, 0, "", "exponent"},
		{`1` + strings.Repeat("0", 10000), 0, "", "exponent"},
		{`0.` + strings.Repeat("0", 9999) + `1`, 0, "", "exponent"},
		{deep(10001), 10000, strings.Repeat("/0", 126) + "/…", "depth"},
		{`{"` + strings.Repeat("é", 200) + `":x}`, 404, "/" + strings.Repeat("é", 126) + "…", "invalid character"},
	} {
		doc := []byte(c.doc)
		got, err := canon.JSON(doc)
		var e *canon.Error
		if !errors.As(err, &e) || !errors.Is(err, canon.ErrInvalidJSON) || got != nil {
			t.Errorf("canon.JSON(%.60q) = %s, %v, want an *Error", c.doc, got, err)
			continue
		}
		if e.Offset != c.offset || e.Path != c.path || !strings.Contains(e.Problem, c.has) {
			t.Errorf("canon.JSON(%.60q): offset %d, path %q, problem %q; want %d, %q, %q", c.doc, e.Offset, e.Path, e.Problem, c.offset, c.path, c.has)
		}
		if !strings.Contains(err.Error(), e.Problem) {
			t.Errorf("the error %q does not say the problem", err)
		}
		if string(doc) != c.doc {
			t.Errorf("canon.JSON(%.60q) changed its argument", c.doc)
		}
	}
	if got := canonical(t, deep(10000)); got != deep(10000) {
		t.Errorf("10,000 levels came out as %d bytes", len(got))
	}
}

func TestValue(t *testing.T) {
	type request struct {
		Zip   string          `json:"zip"`
		Cents int64           `json:"cents"`
		Rate  float64         `json:"rate"`
		Note  *string         `json:"note,omitempty"`
		Extra json.RawMessage `json:"extra"`
	}
	got, err := canon.Value(request{Zip: "<1>", Cents: 1<<53 + 1, Rate: 2, Extra: json.RawMessage(`{"b":1.0,"a":1e1}`)})
	if want := `{"cents":9007199254740993,"extra":{"a":10,"b":1},"rate":2,"zip":"<1>"}`; err != nil || string(got) != want {
		t.Errorf("canon.Value = %s, %v, want %s", got, err, want)
	}
	if got, err := canon.Value(nil); err != nil || string(got) != "null" {
		t.Errorf("canon.Value(nil) = %s, %v", got, err)
	}
	var unsupported *json.UnsupportedTypeError
	if _, err := canon.Value(func() {}); !errors.As(err, &unsupported) || errors.Is(err, canon.ErrInvalidJSON) {
		t.Errorf("canon.Value of a function: %v, want the error of encoding/json", err)
	}
	if _, err := canon.Value(json.RawMessage(`{"a":1,"a":2}`)); !errors.Is(err, canon.ErrInvalidJSON) {
		t.Errorf("canon.Value of a duplicate: %v, want ErrInvalidJSON", err)
	}
}

// The tags of a release are compared with those of the next, so they never change.
func TestFingerprint(t *testing.T) {
	const tag = "c14n1:sha256:43258cff783fe7036d8a43033f830adfc60ec037382473548ac742b888292777"
	if got := canon.Fingerprint([]byte(`{"a":1}`)); got != "c14n1:sha256:015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862" {
		t.Errorf("canon.Fingerprint = %s", got)
	}
	if got := canon.Fingerprint([]byte(canonical(t, ` { "b" : 2.0 , "a" : 1 } `))); got != tag {
		t.Errorf("canon.Fingerprint = %s, want %s", got, tag)
	}
	if !canon.Current(tag) {
		t.Errorf("canon.Current(%s) is false", tag)
	}
	for _, other := range []string{"", "c14n1:sha256:", "c14n2" + tag[5:], tag[:len(tag)-1], tag + "0", tag[6:]} {
		if canon.Current(other) {
			t.Errorf("canon.Current(%q) is true", other)
		}
	}
}

// A node is a document before it is spelled.
type node any

type number struct{ r *big.Rat }

type members []struct {
	name  string
	value node
}

func drawNode(t *rapid.T, depth int) node {
	kinds := 5
	if depth == 0 {
		kinds = 3
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "literal")
	case 1:
		return []byte(drawString(t))
	case 2:
		n := big.NewInt(rapid.Int64().Draw(t, "mantissa"))
		return number{scaled(n, rapid.IntRange(-40, 40).Draw(t, "exponent"))}
	case 3:
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) node { return drawNode(t, depth-1) }), 0, 4).Draw(t, "array")
	default:
		var m members
		for _, name := range rapid.SliceOfNDistinct(rapid.Custom(drawString), 0, 5, rapid.ID).Draw(t, "names") {
			m = append(m, struct {
				name  string
				value node
			}{name, drawNode(t, depth-1)})
		}
		return m
	}
}

func drawString(t *rapid.T) string {
	return rapid.StringOfN(rapid.RuneFrom([]rune("ab\"\\/\n\u0000é\u2028\ue000\uffff😀𐀀<")), 0, 6, -1).Draw(t, "string")
}

// scaled is n × 10^e.
func scaled(n *big.Int, e int) *big.Rat {
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(e, -e))), nil)
	if e < 0 {
		return new(big.Rat).SetFrac(n, power)
	}
	return new(big.Rat).SetInt(power.Mul(power, n))
}

// A speller writes a document in one of many ways.
type speller struct {
	*rand.Rand
	b strings.Builder
}

func spell(n node, seed int64) string {
	s := &speller{Rand: rand.New(rand.NewSource(seed))}
	s.node(n)
	return s.b.String()
}

func (s *speller) node(n node) {
	s.space()
	switch n := n.(type) {
	case string:
		s.b.WriteString(n)
	case []byte:
		s.string(string(n))
	case number:
		s.number(n.r)
	case []node:
		s.list('[', ']', len(n), func(i int) { s.node(n[i]) })
	case members:
		order := s.Perm(len(n))
		s.list('{', '}', len(n), func(i int) {
			s.space()
			s.string(n[order[i]].name)
			s.space()
			s.b.WriteByte(':')
			s.node(n[order[i]].value)
		})
	}
	s.space()
}

func (s *speller) list(open, end byte, n int, item func(int)) {
	s.b.WriteByte(open)
	s.space()
	for i := range n {
		if i > 0 {
			s.b.WriteByte(',')
		}
		item(i)
	}
	s.b.WriteByte(end)
}

func (s *speller) space() {
	for s.Intn(4) == 0 {
		s.b.WriteByte(" \t\r\n"[s.Intn(4)])
	}
}

func (s *speller) string(v string) {
	s.b.WriteByte('"')
	for _, r := range v {
		if s.Intn(3) > 0 && r >= ' ' && r != '"' && r != '\\' {
			s.b.WriteRune(r)
			continue
		}
		for _, u := range utf16s(r) {
			s.b.WriteString(`\u`)
			for shift := 12; shift >= 0; shift -= 4 {
				s.b.WriteByte([]string{"0123456789abcdef", "0123456789ABCDEF"}[s.Intn(2)][u>>shift&15])
			}
		}
	}
	s.b.WriteByte('"')
}

func utf16s(r rune) []rune {
	if r < 0x10000 {
		return []rune{r}
	}
	r -= 0x10000
	return []rune{0xd800 + r>>10, 0xdc00 + r&0x3ff}
}

// number writes an exact decimal: digits with a point anywhere and an exponent that makes up
// for it.
func (s *speller) number(r *big.Rat) {
	e := 0
	for ; !r.IsInt(); e-- {
		r = new(big.Rat).Mul(r, big.NewRat(10, 1))
	}
	digits := new(big.Int).Abs(r.Num()).String()
	if r.Sign() < 0 || r.Sign() == 0 && s.Intn(2) == 0 {
		s.b.WriteByte('-')
	}
	zeros := s.Intn(4)
	digits, e = digits+strings.Repeat("0", zeros), e-zeros
	if point := s.Intn(len(digits) + 1); point > 0 && point < len(digits) && digits[0] != '0' {
		e += len(digits) - point
		digits = digits[:point] + "." + digits[point:]
	} else if s.Intn(2) == 0 || digits[0] == '0' {
		e += len(digits)
		digits = "0." + digits
	}
	s.b.WriteString(digits)
	if e != 0 || s.Intn(3) == 0 {
		s.b.WriteString([]string{"e", "E"}[s.Intn(2)])
		if e >= 0 && s.Intn(2) == 0 {
			s.b.WriteByte('+')
		}
		s.b.WriteString(big.NewInt(int64(e)).String())
	}
}

// Order of members, white space, escapes and the spelling of numbers do not matter, and the
// canonical form is its own.
func TestSpellingDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t, 4)
		one, other := spell(n, rapid.Int64().Draw(t, "seed")), spell(n, rapid.Int64().Draw(t, "seed"))
		a, b := canonical(t, one), canonical(t, other)
		if a != b {
			t.Fatalf("%s\nis %s\n%s\nis %s", one, a, other, b)
		}
		if again := canonical(t, a); again != a {
			t.Fatalf("%s is not its own canonical form, but %s", a, again)
		}
	})
}

// Numbers keep their value exactly: big.Rat reads the same from both spellings. Different
// numbers have different spellings.
func TestNumbersAreExact(t *testing.T) {
	literal := rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := literal.Draw(t, "a"), literal.Draw(t, "b")
		if rapid.Bool().Draw(t, "close") {
			b = "-" + a
			if a[0] == '-' {
				b = a[1:]
			}
			if !strings.ContainsAny(a, "eE") {
				b = a + "e0"
			}
		}
		got, gotB := canonical(t, a), canonical(t, b)
		if rat(t, a).Cmp(rat(t, got)) != 0 {
			t.Fatalf("%s became %s", a, got)
		}
		if same := rat(t, a).Cmp(rat(t, b)) == 0; same != (got == gotB) {
			t.Fatalf("%s became %s, and %s became %s", a, got, b, gotB)
		}
	})
}

func rat(t interface{ Fatalf(string, ...any) }, s string) *big.Rat {
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		t.Fatalf("%q is no number", s)
	}
	return r
}

// For numbers that encoding/json writes, from float64, the spelling is that of RFC 8785,
// which jsontext implements.
func TestFloatsAsRFC8785(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data, err := json.Marshal(rapid.Float64().Draw(t, "float"))
		if err != nil {
			t.Skip("not a number")
		}
		if got, want := canonical(t, string(data)), rfc8785(t, data); got != want {
			t.Fatalf("%s became %s, want %s", data, got, want)
		}
	})
}

func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`{"b":[1.50,-0,1e2,{"d":1,"c":2}],"a":"\u0041\ud83d\ude00"}`, `[[[]]]`, `{"😀":1,"\ue000":2}`, ` 1e9999 `, `1e-10000`,
		`{"a":1,"\u0061":2}`, `0e0000000000000000000100000000000000`, `"\ud800"`, "\"\xff\"", `[1,]`, `{} {}`, `{"\\":1,"\"":{"b":0,"a":[{"z":1,"y":2}]}}`, `-0.000e+5`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		got, err := canon.JSON(data)
		if !bytes.Equal(before, data) {
			t.Fatalf("%q was changed to %q", before, data)
		}
		if err != nil {
			var e *canon.Error
			if !errors.As(err, &e) || got != nil || e.Problem == "" || e.Offset < 0 || e.Offset > int64(len(data)) || len(e.Path) > 256 {
				t.Fatalf("canon.JSON(%q): %q, %#v", data, got, err)
			}
			return
		}
		again, err := canon.JSON(got)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q became %q, and that became %q, %v", data, got, again, err)
		}
		if !json.Valid(got) {
			t.Fatalf("%q became %q, which is not JSON", data, got)
		}
		if diff := cmp.Diff(decoded(t, data), decoded(t, got), rats); diff != "" {
			t.Fatalf("%q became %q:\n%s", data, got, diff)
		}
	})
}

// rats compares numbers by value.
var rats = cmp.Comparer(func(a, b json.Number) bool { return exactly(a).Cmp(exactly(b)) == 0 })

// exactly is the value of a number. big.Rat refuses a zero with a large exponent.
func exactly(n json.Number) *big.Rat {
	mantissa, _, _ := strings.Cut(strings.ToLower(string(n)), "e")
	if strings.Trim(mantissa, "-0.") == "" {
		return new(big.Rat)
	}
	r, ok := new(big.Rat).SetString(string(n))
	if !ok {
		panic("no number: " + string(n))
	}
	return r
}

func decoded(t *testing.T, data []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json does not read %q: %v", data, err)
	}
	return v
}

// Strings that are not valid UTF-8 are refused wherever encoding/json would replace what is not valid. What it leaves as it is
// is not refused.
func TestValuesThatAreNotUTF8(t *testing.T) {
	type named struct {
		A string `json:"a,omitempty"`
		B string `json:"-"`
		c string
	}
	for _, v := range []any{"\xff", []string{"a", "\xc3"}, map[string]string{"\xff": ""}, named{A: "\xed\xa0\x80"}, &named{A: "\xff"}, []any{named{A: "\xff"}}, "\ufffd\xff", json.RawMessage("\"\xff\"")} {
		if got, err := canon.Value(v); !errors.Is(err, canon.ErrInvalidJSON) {
			t.Errorf("%q: %q, %v", v, got, err)
		}
	}
	for _, c := range []struct {
		v    any
		want string
	}{
		{"\ufffd", "\"\ufffd\""},
		{`\ufffd`, `"\\ufffd"`},
		{json.RawMessage(`"\ufffd"`), "\"\ufffd\""},
		{[]byte("\xff"), `"/w=="`},
		{named{A: `\ufffd`, B: "\xff", c: "\xff"}, `{"a":"\\ufffd"}`},
		{map[string]any{"b": json.RawMessage(`"\ufffd"`), "a": 1.5}, "{\"a\":1.5,\"b\":\"\ufffd\"}"},
	} {
		if got, err := canon.Value(c.v); err != nil || string(got) != c.want {
			t.Errorf("%q: %q, %v, want %q", c.v, got, err, c.want)
		}
	}
}
