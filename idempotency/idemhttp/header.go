package idemhttp

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/weft-go/weft/internal/httpheader"
)

const (
	keyHeader = httpheader.IdempotencyKey
	mostWait  = 30 * time.Second
)

// readKey returns the client's key.
func readKey(h http.Header) (string, *problem) {
	key, err := httpheader.Key(h)
	switch {
	case errors.Is(err, httpheader.ErrNoKey):
		return "", missing(keyHeader)
	case err != nil:
		return "", newProblem(http.StatusBadRequest, "idempotency_key_invalid", never, err.Error())
	}
	return key, nil
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

// readWait returns how long the client would like to wait.
func readWait(h http.Header) time.Duration { return httpheader.Wait(h, mostWait) }
