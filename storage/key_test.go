package storage_test

import (
	"bytes"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-go/weft/storage"
)

// anyBytes generates byte strings, including those that need escaping.
func anyBytes() *rapid.Generator[string] {
	nasty := rapid.SampledFrom([]string{"", ":", "%", "/", "\x00", "%3A", "%3a", "%25", "a:b", "::", "é", "e\u0301", "\xff", "~", " "})
	raw := rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) })
	return rapid.OneOf(nasty, raw)
}

// SIG-16, SIG-17, ACT-2: any list of byte strings survives AppendKey and SplitKey.
func TestKeyIsReversible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(anyBytes(), 1, 5).Draw(t, "components")
		key := storage.AppendKey(nil, in...)
		out, err := storage.SplitKey(key)
		if err != nil || !slices.Equal(out, in) {
			t.Errorf("SplitKey(AppendKey(%q)) = %q, %v; key %q", in, out, err, key)
		}
		if n := bytes.Count(key, []byte(":")); n != len(in)-1 {
			t.Errorf("AppendKey(%q) = %q has %d borders, want %d", in, key, n, len(in)-1)
		}
	})
}

// otherwise generates lists that equal a if separators or escapes are ignored: the
// same bytes split elsewhere, or unescaped.
func otherwise(a []string) *rapid.Generator[[]string] {
	return rapid.Custom(func(t *rapid.T) []string {
		joined := strings.Join(a, ":")
		if rapid.Bool().Draw(t, "unescaped") {
			if s, err := url.PathUnescape(joined); err == nil {
				joined = s
			}
		}
		b := []string{""}
		for i, part := range strings.Split(joined, ":") {
			switch last := len(b) - 1; {
			case i == 0:
				b[0] = part
			case rapid.Bool().Draw(t, "a border"):
				b = append(b, part)
			default:
				b[last] += ":" + part
			}
		}
		return b
	})
}

// ACT-26 to ACT-30: different lists have different keys, and no key is a prefix of
// another list's key unless a separator follows.
func TestKeyIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(anyBytes(), 1, 4).Draw(t, "a")
		b := rapid.OneOf(rapid.SliceOfN(anyBytes(), 1, 4), otherwise(a)).Draw(t, "b")
		ka, kb := storage.AppendKey(nil, a...), storage.AppendKey(nil, b...)
		if bytes.Equal(ka, kb) != slices.Equal(a, b) {
			t.Errorf("AppendKey(%q) = %q and AppendKey(%q) = %q", a, ka, b, kb)
		}
		if under := append(bytes.Clone(ka), ':'); bytes.HasPrefix(kb, under) {
			if len(b) <= len(a) || !slices.Equal(b[:len(a)], a) {
				t.Errorf("%q is found under %q", b, a)
			}
		}
	})
}

func TestAppendKeyKeepsWhatIsThere(t *testing.T) {
	if got, want := string(storage.AppendKey([]byte("wf:"), "a:b", "c")), "wf:a%3Ab:c"; got != want {
		t.Errorf("AppendKey(wf:, a:b, c) = %q, want %q", got, want)
	}
}

func TestSplitKeyTakesOnlyWhatAppendKeyMakes(t *testing.T) {
	for _, key := range []string{
		"a%3ab",   // lower-case hexadecimal
		"%41",     // unnecessary escape
		"%", "%3", // cut off
		"%GG",  // not hexadecimal
		"a b",  // not escaped
		"é",    // likewise
		"a%%b", // likewise
		"a/b",
		"\x00",
	} {
		if parts, err := storage.SplitKey([]byte(key)); err == nil {
			t.Errorf("SplitKey(%q) = %q, want an error", key, parts)
		}
	}
}

// FuzzKey: a component survives, and AppendKey reproduces what SplitKey accepts.
func FuzzKey(f *testing.F) {
	for _, s := range []string{"", "a", "a:b", "a%3Ab", "%", "%3", "é", "\x00\xff", "wf:a%3Ab:ckpt"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key := storage.AppendKey(nil, s)
		if parts, err := storage.SplitKey(key); err != nil || len(parts) != 1 || parts[0] != s {
			t.Errorf("SplitKey(AppendKey(%q)) = %q, %v", s, parts, err)
		}
		if parts, err := storage.SplitKey([]byte(s)); err == nil {
			if again := storage.AppendKey(nil, parts...); string(again) != s {
				t.Errorf("SplitKey(%q) = %q, of which AppendKey makes %q", s, parts, again)
			}
		}
	})
}
