package idemhttp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

const (
	keyHeader = "Idempotency-Key"
	maxKey    = 255 // bytes
	mostWait  = 30 * time.Second
)

// readKey returns the client's key. The header is a string of RFC 9651, section 3.3.3, or the key without
// quotation marks, as most clients send it.
func readKey(h http.Header) (string, *problem) {
	values := h[keyHeader]
	if len(values) > 1 {
		return "", badKey("it occurs %d times", len(values))
	}
	if len(values) == 0 || values[0] == "" {
		return "", missing(keyHeader)
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
	switch {
	case key == "":
		return "", missing(keyHeader)
	case len(key) > maxKey:
		return "", badKey("it has %d bytes, at most %d are allowed", len(key), maxKey)
	case strings.ContainsFunc(key, func(c rune) bool { return c < 0x21 || c > 0x7e }):
		return "", badKey("it must be of visible ASCII characters, without spaces")
	}
	return key, nil
}

func badKey(format string, args ...any) *problem {
	return newProblem(http.StatusBadRequest, "idempotency_key_invalid", never, keyHeader+" header is invalid: "+fmt.Sprintf(format, args...))
}

// missing is the problem of a required header that is absent or empty.
func missing(name string) *problem {
	code := "idempotency_required"
	if name != keyHeader {
		code = "invalid_request"
	}
	return newProblem(http.StatusBadRequest, code, never, name+" header is required")
}

// otherHeaders are the required ones without the key.
func otherHeaders(required []string) []string {
	var others []string
	for _, name := range required {
		if name = http.CanonicalHeaderKey(name); name != keyHeader {
			others = append(others, name)
		}
	}
	return others
}

// firstMissing returns the first of names that h does not have.
func firstMissing(h http.Header, names []string) (string, bool) {
	i := slices.IndexFunc(names, func(name string) bool { return h.Get(name) == "" })
	if i < 0 {
		return "", false
	}
	return names[i], true
}

// readWait returns how long the client would like to wait, at most 30 s: the wait of a Prefer header (RFC 7240,
// section 4.3). A header that is no dictionary of RFC 9651 is ignored, as RFC 7240 allows.
func readWait(h http.Header) time.Duration {
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
	return time.Duration(min(max(seconds, 0), int64(mostWait/time.Second))) * time.Second
}
