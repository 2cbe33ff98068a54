package keys

import (
	"fmt"
	"strconv"
	"time"

	"github.com/weft-go/weft/storage"
)

// The control plane's records begin with ctl:. A namespace, ns, is a project and an environment.

// ControlKey is the key of an API key, by the SHA-256 of its secret in hexadecimal:
// ctl:key:{hash}.
func ControlKey(hash string) []byte { return key("ctl:key:", hash) }

// ControlKeyID is the key of the secrets of an API key, by its id: ctl:keyid:{ns}:{id}.
func ControlKeyID(ns, id string) []byte { return key("ctl:keyid:", ns, id) }

// ControlKeyIDs is the range of the ControlKeyID keys of a namespace, or, if ns is empty, of all.
func ControlKeyIDs(ns string) storage.Range { return controlRange("ctl:keyid:", ns) }

// ControlAudit is the key of an audit row: ctl:audit:{ns}:{id}. Ids are ULIDs.
func ControlAudit(ns, id string) []byte { return key("ctl:audit:", ns, id) }

// ControlAudits is the range of the audit rows of a namespace, oldest first, or, if ns is empty, of
// all.
func ControlAudits(ns string) storage.Range { return controlRange("ctl:audit:", ns) }

// ControlRate is the key of how often an API key was used lately: ctl:rate:{ns}:{id}.
func ControlRate(ns, id string) []byte { return key("ctl:rate:", ns, id) }

// ControlHit is the key of the unexpected hits of a minute: ctl:hit:{unix minute}.
func ControlHit(at time.Time) []byte {
	return appendNumber([]byte("ctl:hit:"), uint64(max(at.Unix()/60, 0)), timeDigits)
}

// ControlHitsUntil is the range of the ControlHit keys of the minutes before that of a time.
func ControlHitsUntil(at time.Time) storage.Range {
	return storage.Range{Start: []byte("ctl:hit:"), End: ControlHit(at)}
}

// ControlHitsFrom is the range of the ControlHit keys of the minute of a time and later ones.
func ControlHitsFrom(at time.Time) storage.Range {
	r := storage.Prefix([]byte("ctl:hit:"))
	r.Start = ControlHit(at)
	return r
}

// ControlHitMinute returns when the minute of a ControlHit key began.
func ControlHitMinute(k []byte) (time.Time, error) {
	s, err := nth(k, 2)
	if err != nil {
		return time.Time{}, err
	}
	minute, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: no minute in key %q", storage.ErrCorrupt, k)
	}
	return time.Unix(minute*60, 0), nil
}

// ControlHits is the key of all unexpected hits there ever were.
func ControlHits() []byte { return []byte("ctl:hits") }

// ControlNames splits a key of ControlKeyID, ControlAudit or ControlRate.
func ControlNames(k []byte) (ns, name string, err error) {
	parts, err := storage.SplitKey(k)
	if err != nil || len(parts) != 4 {
		return "", "", fmt.Errorf("%w: key %q", storage.ErrCorrupt, k)
	}
	return parts[2], parts[3], nil
}

func controlRange(family, ns string) storage.Range {
	if ns == "" {
		return storage.Prefix([]byte(family))
	}
	return storage.Prefix(append(key(family, ns), ':'))
}
