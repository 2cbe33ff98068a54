package idemhttp

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/weft-go/weft/internal/httpheader"
)

// FEN-46, FEN-63: every spelling of the header is one key, or refused.
func TestReadKey(t *testing.T) {
	for _, c := range []struct {
		values []string
		key    string
		code   string
	}{
		{nil, "", "idempotency_required"},
		{[]string{""}, "", "idempotency_required"},
		{[]string{`""`}, "", "idempotency_required"},
		{[]string{"k"}, "k", ""},
		{[]string{`"k"`}, "k", ""},
		{[]string{"!#$%&'*+-./:<=>?@[]^_`{|}~()"}, "!#$%&'*+-./:<=>?@[]^_`{|}~()", ""},
		{[]string{`a\b`}, `a\b`, ""},
		{[]string{`"a\\b"`}, `a\b`, ""},
		{[]string{`"a\"b"`}, `a"b`, ""},
		{[]string{`"a,b;c"`}, `a,b;c`, ""},
		{[]string{":azE=:"}, ":azE=:", ""}, // no byte sequence of RFC 9651: only strings are
		{[]string{strings.Repeat("k", 255)}, strings.Repeat("k", 255), ""},
		{[]string{`"` + strings.Repeat("k", 255) + `"`}, strings.Repeat("k", 255), ""},
		{[]string{strings.Repeat("k", 256)}, "", "idempotency_key_invalid"},
		{[]string{`"` + strings.Repeat("k", 256) + `"`}, "", "idempotency_key_invalid"},
		{[]string{"k", "k"}, "", "idempotency_key_invalid"},
		{[]string{"", "k"}, "", "idempotency_key_invalid"},
		{[]string{`"k"`, `"k"`}, "", "idempotency_key_invalid"},
		{[]string{"a,b"}, "", "idempotency_key_invalid"},
		{[]string{"a;b"}, "", "idempotency_key_invalid"},
		{[]string{`a"b`}, "", "idempotency_key_invalid"},
		{[]string{`k"`}, "", "idempotency_key_invalid"},
		{[]string{`"k`}, "", "idempotency_key_invalid"},
		{[]string{`"`}, "", "idempotency_key_invalid"},
		{[]string{`"a"b`}, "", "idempotency_key_invalid"},
		{[]string{`"a", "b"`}, "", "idempotency_key_invalid"},
		{[]string{`"k";a=1`}, "", "idempotency_key_invalid"},
		{[]string{`"a\b"`}, "", "idempotency_key_invalid"},
		{[]string{"a b"}, "", "idempotency_key_invalid"},
		{[]string{`"a b"`}, "", "idempotency_key_invalid"},
		{[]string{"a\tb"}, "", "idempotency_key_invalid"},
		{[]string{"a\x00b"}, "", "idempotency_key_invalid"},
		{[]string{"a\x7fb"}, "", "idempotency_key_invalid"},
		{[]string{"é"}, "", "idempotency_key_invalid"},
		{[]string{`"é"`}, "", "idempotency_key_invalid"},
		{[]string{"\xff"}, "", "idempotency_key_invalid"},
	} {
		key, p := readKey(http.Header{keyHeader: c.values})
		if code := codeOf(p); key != c.key || code != c.code {
			t.Errorf("%q: %q %q, want %q %q", c.values, key, code, c.key, c.code)
		}
		if p != nil && p.Status != http.StatusBadRequest {
			t.Errorf("%q: status %d", c.values, p.Status)
		}
	}
}

func codeOf(p *problem) string {
	if p == nil {
		return ""
	}
	return p.Code
}

var (
	bareKey   = regexp.MustCompile(`^[!#-+\--:<-~]{1,255}$`)
	quotedKey = regexp.MustCompile(`^"((?:[!#-\[\]-~]|\\["\\])+)" *$`)
	escapes   = strings.NewReplacer(`\\`, `\`, `\"`, `"`)
)

// FEN-46, FEN-63: a value is a key if and only if the grammar says so, and no other spelling of it is another key.
func FuzzReadKey(f *testing.F) {
	for _, s := range []string{"", "k", `"k"`, `"a\"b"`, `"a\\b"`, `"k";a=1`, "a,b", `"`, `""`, "é", strings.Repeat("k", 256), "\x00", `"k" `, `"a b"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		want := ""
		if bareKey.MatchString(value) {
			want = value
		} else if m := quotedKey.FindStringSubmatch(value); m != nil && len(escapes.Replace(m[1])) <= httpheader.MaxKey {
			want = escapes.Replace(m[1])
		}
		key, p := readKey(http.Header{keyHeader: {value}})
		if key != want || (p == nil) != (want != "") {
			t.Fatalf("%q: key %q, problem %v; want %q", value, key, p, want)
		}
		if p != nil {
			return
		}
		quoted, err := httpsfv.Marshal(httpsfv.NewItem(key))
		if err != nil {
			t.Fatal(err)
		}
		if again, p := readKey(http.Header{keyHeader: {quoted}}); again != key || p != nil {
			t.Fatalf("%q and %q: keys %q and %q, %v", value, quoted, key, again, p)
		}
	})
}

// Prefer says how long a client would like to wait. What is not understood is ignored.
func TestReadWait(t *testing.T) {
	for _, c := range []struct {
		values []string
		want   time.Duration
	}{
		{nil, 0},
		{[]string{""}, 0},
		{[]string{"wait=0"}, 0},
		{[]string{"wait=1"}, time.Second},
		{[]string{"wait=30"}, 30 * time.Second},
		{[]string{"wait=31"}, 30 * time.Second},
		{[]string{"wait=999999999999999"}, 30 * time.Second},
		{[]string{"wait=9999999999999999"}, 0}, // more digits than RFC 9651 allows
		{[]string{"wait=-5"}, 0},
		{[]string{"wait=1.5"}, 0},
		{[]string{"wait"}, 0},
		{[]string{`wait="5"`}, 0},
		{[]string{"wait=(5)"}, 0},
		{[]string{"wait=soon"}, 0},
		{[]string{"respond-async, wait=5"}, 5 * time.Second},
		{[]string{"wait=5, handling=lenient"}, 5 * time.Second},
		{[]string{"respond-async", "wait=5"}, 5 * time.Second},
		{[]string{`note="a, wait=9"`}, 0},
		{[]string{"wait=5,"}, 0},
	} {
		if got := readWait(http.Header{"Prefer": c.values}); got != c.want {
			t.Errorf("%q: %v, want %v", c.values, got, c.want)
		}
	}
}

// A name of an endpoint is cut to what a key may have, without two becoming one, and stays UTF-8.
func TestShorten(t *testing.T) {
	long := strings.Repeat("é", 101)
	for _, c := range []struct {
		name string
		most int
	}{{"POST /a", 7}, {strings.Repeat("a", 200), 200}, {strings.Repeat("a", 201), 200}, {long, 200}, {"a" + long, 200}} {
		got := shorten(c.name)
		if len(got) > c.most || len(c.name) <= 200 && got != c.name || strings.ToValidUTF8(got, "") != got {
			t.Errorf("%q: %q", c.name, got)
		}
	}
	if a, b := shorten(long+"a"), shorten(long+"b"); a == b {
		t.Errorf("two names became %q", a)
	}
}
