// Package deployment keeps what is known of each deployment: dep:{id}. Which one is active is not
// in its record: the record meta:deployment of package run says so for all of them.
package deployment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// Version is the version of the records that this package writes.
const Version = 1

// MaxManifest is the maximum size of a manifest in bytes.
const MaxManifest = 256 << 10

// A Record says what a deployment is. Times are in microseconds since 1970; zero means never.
type Record struct {
	ID string `cbor:"-"`

	// Manifest is JSON of at most MaxManifest bytes, and Digest the SHA-256 of its canonical form.
	Manifest []byte `cbor:"1,keyasint,omitempty"`
	Digest   []byte `cbor:"2,keyasint,omitempty"`

	Artifact *Artifact `cbor:"3,keyasint,omitempty"` // nil: none

	CreatedAt int64  `cbor:"4,keyasint,omitempty"`
	CreatedBy string `cbor:"5,keyasint,omitempty"`

	// ActivatedAt is when the deployment was activated last.
	ActivatedAt int64 `cbor:"6,keyasint,omitempty"`

	raw     []byte
	unknown record.Unknown
}

// An Artifact is the file that a deployment runs.
type Artifact struct {
	SHA256 []byte `cbor:"1,keyasint,omitempty"`
	Size   int64  `cbor:"2,keyasint,omitempty"` // in bytes
	Path   string `cbor:"3,keyasint,omitempty"` // as its uploader names it; it is never opened
}

// ValidID reports whether id can be the id of a deployment with a record: 1 to 100 letters,
// digits, underscores and hyphens, and not "active". The engine itself takes other names too; those
// have no record.
func ValidID(id string) bool {
	if id == "" || len(id) > keys.MaxName || id == "active" {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// Load reads the record of a deployment. It returns storage.ErrNotFound if there is none, and an
// error for which record.Damaged is true if it cannot be decoded.
func Load(ctx context.Context, s storage.Storage, id string) (*Record, error) {
	key := keys.Deployment(id)
	raw, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return open(key, id, raw)
}

// Open decodes an entry in a range of Range.
func Open(e storage.Entry) (*Record, error) {
	id, err := keys.Last(e.Key)
	if err != nil {
		return nil, err
	}
	return open(e.Key, id, e.Value)
}

func open(key []byte, id string, raw []byte) (*Record, error) {
	r := &Record{ID: id, raw: raw}
	unknown, err := record.Open(key, raw, Version, r)
	if err != nil {
		return nil, fmt.Errorf("deployment %q: %w", id, err)
	}
	r.unknown = unknown
	return r, nil
}

// Range is the range of the records of all deployments, in the order of their ids, behind the id
// after; "" is the beginning.
func Range(after string) storage.Range {
	r := keys.Deployments()
	if after != "" {
		r.Start = append(keys.Deployment(after), 0)
	}
	return r
}

// Create returns the batch that writes r as a new record. Its condition is that there is none.
func (r *Record) Create() (storage.Batch, error) {
	put, err := r.put()
	return storage.Batch{If: []storage.Condition{storage.Absent(put.Key)}, Ops: []storage.Op{put}}, err
}

// Unchanged returns the condition that the stored record is still r, which was loaded.
func (r *Record) Unchanged() storage.Condition { return storage.Equal(keys.Deployment(r.ID), r.raw) }

// Activated returns the batch that notes in the record of id, if there is one, that it was
// activated. It has no operation for a record that is damaged or of a newer release, so that
// nothing stands in the way of an activation. Its condition is that the record, or that there is
// none, is unchanged.
func Activated(ctx context.Context, s storage.Storage, id string, at time.Time) (storage.Batch, error) {
	r, err := Load(ctx, s, id)
	switch key := keys.Deployment(id); {
	case errors.Is(err, storage.ErrNotFound):
		// A batch must change what it wants absent: deleted, it stays absent.
		return storage.Batch{If: []storage.Condition{storage.Absent(key)}, Ops: []storage.Op{storage.Delete(key)}}, nil
	case record.Damaged(err):
		return storage.Batch{}, nil
	case err != nil:
		return storage.Batch{}, err
	}
	same := r.Unchanged()
	r.ActivatedAt = journal.Micro(at)
	put, err := r.put()
	return storage.Batch{If: []storage.Condition{same}, Ops: []storage.Op{put}}, err
}

func (r *Record) put() (storage.Op, error) {
	key := keys.Deployment(r.ID)
	raw, err := record.Seal(key, Version, r, r.unknown)
	return storage.Put(key, raw), err
}
