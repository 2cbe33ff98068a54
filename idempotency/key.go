package idempotency

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/weft-go/weft/idempotency/internal/entry"
)

// A Key names one effect. Two calls with equal keys ask for the same effect, and it is sealed once. Name the effect and not
// the thing that it acts on: two refunds of one payment are two effects, and need two keys.
//
// Fields are UTF-8 without NUL. SourceType is required, and one of SourceID and IndexHash.
type Key struct {
	Tenant     string // whose effect it is; no tenant sees another's; at most 100 bytes
	SourceType string // what asks: a provider, a kind of job, an endpoint; required, at most 200 bytes
	SourceID   string // the event, document or request, or the client's Idempotency-Key; at most 255 bytes
	Revision   string // a content hash, a version or an ETag; at most 255 bytes
	IndexHash  string // of the index build that the effect depends on; at most 255 bytes
	Action     string // create, refund, ingest; empty: the Effect's Name; at most 100 bytes
}

// Limits of the fields of a Key, in bytes.
const (
	maxTenant     = 100
	maxSourceType = 200
	maxSource     = 255
	maxAction     = 100
)

// Hash returns the name of the effect for external systems and for logs: 64 hexadecimal digits of SHA-256 over the six
// fields, each preceded by its length. It depends on nothing else, so it is the same in every process and after any restart.
func (k Key) Hash() string { return entry.Key(k).Hash() }

// Check returns an error that wraps ErrInvalid if k is no key. Do completes an empty Action first.
func (k Key) Check() error {
	for _, f := range []struct {
		name, value string
		most        int
	}{
		{"Key.Tenant", k.Tenant, maxTenant},
		{"Key.SourceType", k.SourceType, maxSourceType},
		{"Key.SourceID", k.SourceID, maxSource},
		{"Key.Revision", k.Revision, maxSource},
		{"Key.IndexHash", k.IndexHash, maxSource},
		{"Key.Action", k.Action, maxAction},
	} {
		if err := checkText(f.name, f.value, f.most); err != nil {
			return err
		}
	}
	if k.SourceType == "" {
		return fmt.Errorf("%w: Key.SourceType is required", ErrInvalid)
	}
	if k.SourceID == "" && k.IndexHash == "" {
		return fmt.Errorf("%w: Key.SourceID or Key.IndexHash is required", ErrInvalid)
	}
	return nil
}

// checkText returns an error that wraps ErrInvalid if s cannot be part of a key.
func checkText(what, s string, most int) error {
	switch {
	case len(s) > most:
		return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrInvalid, what, len(s), most)
	case !utf8.ValidString(s):
		return fmt.Errorf("%w: %s is not valid UTF-8: %q", ErrInvalid, what, s)
	case strings.IndexByte(s, 0) >= 0:
		return fmt.Errorf("%w: %s contains a NUL: %q", ErrInvalid, what, s)
	}
	return nil
}
