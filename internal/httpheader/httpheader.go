// Package httpheader reads header fields that several servers of this module understand.
package httpheader

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// IdempotencyKey is the name of the header field that names a request.
const IdempotencyKey = "Idempotency-Key"

// MaxKey is the length of the longest idempotency key, in bytes.
const MaxKey = 255

// ErrNoKey means that there is no idempotency key, or an empty one.
var ErrNoKey = errors.New(IdempotencyKey + " header is required")

// Key returns the client's idempotency key. The field is a string of RFC 9651, section 3.3.3, or the key
// without quotation marks, as most clients send it. The error is ErrNoKey, or says what is wrong.
func Key(h http.Header) (string, error) {
	values := h[IdempotencyKey]
	if len(values) > 1 {
		return "", badKey("it occurs %d times", len(values))
	}
	if len(values) == 0 || values[0] == "" {
		return "", ErrNoKey
	}
	key := values[0]
	if key[0] == '"' {
		item, err := httpsfv.UnmarshalItem(values)
		if err != nil {
			return "", badKey("it begins with a quotation mark and is no string of RFC 9651")
		}
		if len(item.Params.Names()) > 0 {
			return "", badKey("it has parameters")
		}
		key = item.Value.(string)
	} else if strings.ContainsAny(key, `,;"`) {
		return "", badKey("without quotation marks it must not contain a comma, a semicolon or a quotation mark")
	}
	return key, CheckKey(key)
}

// CheckKey returns ErrNoKey if key is empty, and an error if it is too long or not of visible ASCII.
func CheckKey(key string) error {
	switch {
	case key == "":
		return ErrNoKey
	case len(key) > MaxKey:
		return badKey("it has %d bytes, at most %d are allowed", len(key), MaxKey)
	case strings.ContainsFunc(key, func(c rune) bool { return c < 0x21 || c > 0x7e }):
		return badKey("it must be of visible ASCII characters, without spaces")
	}
	return nil
}

func badKey(format string, args ...any) error {
	return errors.New(IdempotencyKey + " header is invalid: " + fmt.Sprintf(format, args...))
}

// Wait returns how long the client would like to wait, at most most: the wait of a Prefer field (RFC 7240,
// section 4.3). A field that is no dictionary of RFC 9651 is ignored, as RFC 7240 allows.
func Wait(h http.Header, most time.Duration) time.Duration {
	values := h["Prefer"]
	if len(values) == 0 {
		return 0
	}
	prefer, err := httpsfv.UnmarshalDictionary(values)
	if err != nil {
		return 0
	}
	member, _ := prefer.Get("wait")
	item, _ := member.(httpsfv.Item)
	seconds, _ := item.Value.(int64)
	return time.Duration(min(max(seconds, 0), int64(most/time.Second))) * time.Second
}
