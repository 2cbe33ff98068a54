// Package canon gives equal JSON documents equal bytes, a fingerprint of those bytes, and
// says where two documents differ.
//
// The canonical form is that of RFC 8785, but with exact numbers: no white space, members
// ordered by the UTF-16 code units of their names, the shortest spelling of strings, and
// numbers as exact decimals. So 1, 1.0 and 1e0 are equal, and 2^53 and 2^53+1 are not. A
// document whose numbers survive float64 has the same canonical form as in RFC 8785.
package canon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// scheme is stored with every fingerprint. It must change if the canonical form of any
// document does.
const scheme = "c14n1:sha256:"

// JSON returns the canonical form of a document. If data is not exactly one JSON value, or
// one with a duplicate name, a lone surrogate, invalid UTF-8, a number that is too large or
// too small, or more than 10,000 levels, the error is an *Error. data is not changed.
func JSON(data []byte) ([]byte, error) {
	l := layouts.Get().(*layout)
	defer l.release()
	var err error
	// Without options, AppendFormat checks all of this but the numbers, removes white space
	// and spells strings as RFC 8785 does. Its own reordering of members is not used: it
	// takes a time that grows with size times depth.
	if l.compact, err = jsontext.AppendFormat(l.compact[:0], data); err != nil {
		return nil, problem(data, err)
	}
	canonical, ok := l.canonical()
	if !ok {
		return nil, problem(data, errNumber)
	}
	return canonical, nil
}

// Value returns the canonical form of the JSON encoding of v, as encoding/json makes it,
// which is what the JSON codec of an engine uses. A string that is not valid UTF-8 is an
// error that wraps ErrInvalidJSON: encoding/json replaces what is not valid, so that different
// values would be equal.
func Value(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("canon: %w", err)
	}
	// A valid U+FFFD is not escaped, unless v has a MarshalJSON that does so.
	if bytes.Contains(data, []byte(`\ufffd`)) {
		if err := checkUTF8(v); err != nil {
			return nil, err
		}
	}
	return JSON(data)
}

// checkUTF8 returns an error if v contains a string that is not valid UTF-8. It encodes v as
// encoding/json does, but replaces nothing.
func checkUTF8(v any) error {
	err := jsonv2.MarshalWrite(io.Discard, v, jsonv1.DefaultOptionsV1(), jsontext.AllowInvalidUTF8(false))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidJSON, err)
	}
	return nil
}

// Fingerprint returns the tag of a canonical document: the scheme and a SHA-256.
func Fingerprint(canonical []byte) string {
	sum := sha256.Sum256(canonical)
	var tag [len(scheme) + 2*sha256.Size]byte
	copy(tag[:], scheme)
	hex.Encode(tag[len(scheme):], sum[:])
	return string(tag[:])
}

// Current reports whether a tag can be compared with those that Fingerprint returns. If not,
// it is of another release, and has to be made again from the document.
func Current(tag string) bool {
	return len(tag) == len(scheme)+2*sha256.Size && strings.HasPrefix(tag, scheme)
}

// layouts are reused, unless a large document made them large.
var layouts = sync.Pool{New: func() any { return new(layout) }}

// maxReused is the number of bytes, members or objects above which memory is not reused.
const maxReused = 16 << 10
