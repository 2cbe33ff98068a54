package keyring

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/internal/records"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/storage"
)

// A keyRecord is what is known of one secret of a key: ctl:key:{hash}.
type keyRecord struct {
	ID          string   `cbor:"1,keyasint"`
	Project     string   `cbor:"2,keyasint"`
	Environment string   `cbor:"3,keyasint"`
	Scopes      []string `cbor:"4,keyasint"` // sorted
	Hash        []byte   `cbor:"5,keyasint"` // SHA-256 of the secret
	CreatedAt   int64    `cbor:"6,keyasint"` // microseconds, as all times in records
	ExpiresAt   int64    `cbor:"7,keyasint,omitempty"`
	RevokedAt   int64    `cbor:"8,keyasint,omitempty"`

	// Until is the end of the grace of a secret that was rotated out.
	Until int64 `cbor:"9,keyasint,omitempty"`

	raw     []byte
	unknown record.Unknown
	damage  error // why it cannot be read: nobody is accepted by it
}

// A keyIDRecord has the secrets of a key that can be valid: ctl:keyid:{ns}:{id}. Every change of a key is also one of
// this record, or has the condition that it is unchanged.
type keyIDRecord struct {
	Hashes    [][]byte `cbor:"1,keyasint"` // the one in use first, then those before it, the newest first; an earlier release wrote all
	CreatedAt int64    `cbor:"2,keyasint"`
	RevokedAt int64    `cbor:"3,keyasint,omitempty"` // of the key with all its secrets
	Changed   int64    `cbor:"4,keyasint"`           // always rises: no two states are equal bytes

	at, raw []byte
	unknown record.Unknown
}

func (k *keyRecord) namespace() operation.Namespace {
	return operation.Namespace{Project: k.Project, Environment: k.Environment}
}

// isOf reports whether k is a secret of the same key as other.
func (k *keyRecord) isOf(other *keyRecord) bool {
	return k.namespace() == other.namespace() && k.ID == other.ID
}

// valid reports whether the secret is accepted at a time.
func (k *keyRecord) valid(now time.Time) bool {
	at := now.UnixMicro()
	return k.damage == nil && k.RevokedAt == 0 && (k.ExpiresAt == 0 || at < k.ExpiresAt) && (k.Until == 0 || at < k.Until)
}

// newSecret returns a secret of 32 random bytes.
func newSecret() string {
	var b [32]byte
	rand.Read(b[:]) // it does not fail
	return "weft_sk_" + base64.RawURLEncoding.EncodeToString(b[:])
}

func secretHash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// readSecret returns the record of a secret, or nil.
func readSecret(ctx context.Context, s storage.Storage, hash []byte) (*keyRecord, error) {
	at := keys.ControlKey(hex.EncodeToString(hash))
	k := &keyRecord{}
	var err error
	k.raw, k.unknown, err = records.Read(ctx, s, at, k)
	if k.raw == nil {
		return nil, err
	}
	return k, err
}

// readKeyID returns the secrets of a key, or nil.
func readKeyID(ctx context.Context, s storage.Storage, ns operation.Namespace, id string) (*keyIDRecord, error) {
	k := &keyIDRecord{at: keys.ControlKeyID(ns.Tenant(), id)}
	var err error
	k.raw, k.unknown, err = records.Read(ctx, s, k.at, k)
	if k.raw == nil {
		return nil, err
	}
	return k, err
}

// A keyChange is one change of a key.
type keyChange struct{ records.Change }

func (c *keyChange) putSecret(k *keyRecord) {
	c.Put(keys.ControlKey(hex.EncodeToString(k.Hash)), k.raw, k, k.unknown)
}

// putID puts the record of a key with its newest secrets. Who changes one that had more has called revokeOlder before.
func (c *keyChange) putID(k *keyIDRecord, now time.Time) {
	k.Hashes = k.Hashes[:min(newest, len(k.Hashes))]
	k.Changed = max(k.Changed+1, now.UnixMicro())
	c.Put(k.at, k.raw, k, k.unknown)
}

// createKey returns the change that makes a key which is not there.
func createKey(k Key, now time.Time) *keyChange {
	c := &keyChange{}
	first := newKeyRecord(k, now)
	c.putSecret(first)
	c.putID(&keyIDRecord{at: keys.ControlKeyID(first.namespace().Tenant(), k.ID), Hashes: [][]byte{first.Hash}, CreatedAt: first.CreatedAt}, now)
	return c
}

func newKeyRecord(k Key, now time.Time) *keyRecord {
	r := &keyRecord{ID: k.ID, Project: k.Project, Environment: k.Environment, Scopes: sorted(k.Scopes), Hash: secretHash(k.Secret), CreatedAt: now.UnixMicro()}
	if !k.ExpiresAt.IsZero() {
		r.ExpiresAt = k.ExpiresAt.UnixMicro()
	}
	return r
}

// maxFormer is how many former secrets of a key can be valid, so that every store takes a change of all of them in one batch.
const maxFormer = 10

// newest is how many secrets of a key can be valid: the first of keyIDRecord.Hashes. An older one is revoked when it leaves them. Its
// record stays, so that it does not come back: see decide.
const newest = 1 + maxFormer

// rotateKey returns the change that gives a key the secret of next. secrets are the newest before. Those of the first maxFormer
// that are valid are accepted for grace at most, with the scopes and the expiry of next. All that the key was is kept but what
// next says.
func rotateKey(id *keyIDRecord, secrets []*keyRecord, next *keyRecord, grace time.Duration, now time.Time) *keyChange {
	c := &keyChange{}
	c.putSecret(next)
	stay := min(maxFormer, len(secrets))
	for _, s := range secrets[:stay] {
		if s.valid(now) {
			former := *s
			former.Until = earliest(now.Add(grace).UnixMicro(), s.Until)
			former.Scopes, former.ExpiresAt = next.Scopes, next.ExpiresAt
			c.putSecret(&former)
		}
	}
	c.revoke(secrets[stay:], now)
	changed := *id
	changed.Hashes = append([][]byte{next.Hash}, id.Hashes...)
	changed.RevokedAt = 0
	c.putID(&changed, now)
	return c
}

// reviseKey returns the change that gives a key the scopes and the expiry of want. secrets are its newest. The former
// ones that are valid get them, too: otherwise whoever has one keeps what was taken from the key.
func reviseKey(id *keyIDRecord, secrets []*keyRecord, want *keyRecord, now time.Time) *keyChange {
	c := &keyChange{}
	for i, s := range secrets {
		if i == 0 || s.valid(now) {
			revised := *s
			revised.Scopes, revised.ExpiresAt = want.Scopes, want.ExpiresAt
			c.putSecret(&revised)
		}
	}
	changed := *id
	c.putID(&changed, now)
	return c
}

// revoke revokes those secrets that are not revoked, also if their time is over: the clock may be ahead.
func (c *keyChange) revoke(secrets []*keyRecord, now time.Time) {
	for _, s := range secrets {
		if s.damage == nil && s.RevokedAt == 0 {
			revoked := *s
			revoked.RevokedAt = now.UnixMicro()
			c.putSecret(&revoked)
		}
	}
}

// revokeKey returns the change that revokes a key with the newest of its secrets. It is empty if they are.
func revokeKey(id *keyIDRecord, secrets []*keyRecord, now time.Time) *keyChange {
	c := &keyChange{}
	c.revoke(secrets, now)
	if len(c.Ops) > 0 || id.RevokedAt == 0 {
		changed := *id
		changed.RevokedAt = now.UnixMicro()
		c.putID(&changed, now)
	}
	return c
}

// revokeOlder revokes those secrets of a key that are older than the newest, before a change of its record drops them. Only an earlier
// release has left such secrets, any number of them and valid.
func revokeOlder(ctx context.Context, s storage.Storage, id *keyIDRecord) error {
	older, err := readRecords(ctx, s, id.Hashes[min(newest, len(id.Hashes)):])
	if err != nil {
		return err
	}
	return revokeSecrets(ctx, s, older)
}

// revokeSecrets revokes any number of secrets, in batches that every store takes.
func revokeSecrets(ctx context.Context, s storage.Storage, secrets []*keyRecord) error {
	for some := range slices.Chunk(secrets, newest) {
		c := &keyChange{}
		c.revoke(some, time.Now())
		if c.Err != nil {
			return c.Err
		}
		if len(c.Ops) > 0 {
			if err := settle.Commit(ctx, s, c.Batch, nil, settle.Stored(s, c.Ops...)); err != nil {
				return err
			}
		}
	}
	return nil
}

// A seeding says what New makes of a key of Config.Keys.
type seeding uint8

const (
	seedEqual   seeding = iota // it is there as it should be
	seedNew                    // it is not there
	seedChanged                // other scopes, or another expiry
	seedSecret                 // another secret
	seedFormer                 // its secret was rotated out: it stays out
	seedRevoked                // its secret was revoked: it stays out
)

// decide decides on a key of Config.Keys: id and inUse are what is stored of it, or nil. before is what was stored of the secret of want
// before id was read, or nil: if id is older, another process may have given the key this very secret since.
func decide(want, before *keyRecord, id *keyIDRecord, inUse *keyRecord) seeding {
	switch {
	case id == nil:
		return seedNew
	case !slices.Equal(id.Hashes[0], want.Hash):
		if before != nil && before.isOf(want) {
			return seedFormer
		}
		return seedSecret
	case inUse.RevokedAt != 0:
		return seedRevoked
	case !slices.Equal(inUse.Scopes, want.Scopes), inUse.ExpiresAt != want.ExpiresAt:
		return seedChanged
	}
	return seedEqual
}

// A Key is one of Config.Keys, or one that an admin makes.
type Key struct {
	ID          string
	Project     string
	Environment string
	Secret      string
	Scopes      []string
	ExpiresAt   time.Time // zero: never
}

// ErrTaken is the error of a key whose secret is that of another key.
var ErrTaken = errors.New("control: the secret is that of another key")

// seedGrace is how long a secret is accepted after New has replaced it.
const seedGrace = time.Hour

// Seed has the store have a key of Config.Keys. The error is ErrTaken if its secret is another key's.
func (r *Keyring) Seed(ctx context.Context, k Key) error {
	log := r.log.With("key", k.ID, "project", k.Project, "environment", k.Environment)
	for {
		now := time.Now()
		want := newKeyRecord(k, now)
		before, err := readSecret(ctx, r.store, want.Hash) // before id: see decide
		if err != nil {
			return err
		}
		if before != nil && !before.isOf(want) {
			return ErrTaken
		}
		id, inUse, err := readKeyWithID(ctx, r.store, want.namespace(), k.ID)
		if err != nil {
			return err
		}
		var c *keyChange
		what := decide(want, before, id, inUse)
		switch what {
		case seedEqual:
			return nil
		case seedFormer:
			// These Config.Keys are outdated, so their scopes may be what was taken from the key.
			log.Warn("the secret of a key of Config.Keys was rotated out: it stays out", "scopes", inUse.Scopes)
			return nil
		case seedRevoked:
			log.Warn("a key of Config.Keys was revoked: it stays out")
			return nil
		case seedNew:
			c = createKey(k, now)
		case seedChanged, seedSecret:
			secrets, err := readRecords(ctx, r.store, id.Hashes[:min(newest, len(id.Hashes))])
			if err == nil && what == seedChanged {
				err = secrets[0].damage // only another secret replaces it
			}
			if err != nil {
				return err
			}
			c = reviseKey(id, secrets, want, now)
			if what == seedSecret {
				c = rotateKey(id, secrets, want, seedGrace, now)
			}
		}
		if err = c.Err; err == nil && id != nil {
			err = revokeOlder(ctx, r.store, id)
		}
		if err == nil {
			err = settle.Commit(ctx, r.store, c.Batch, nil, settle.Stored(r.store, c.Ops...))
		}
		switch {
		case err == nil:
			if what != seedNew {
				if what == seedSecret {
					log = log.With("formerSecretAcceptedFor", seedGrace)
				}
				log.Warn("a key of Config.Keys has replaced what was stored", "scopes", want.Scopes)
			}
			return nil
		case !errors.Is(err, storage.ErrConflict):
			return err
		}
	}
}

// HasKey reports whether any key of any namespace is valid.
func (r *Keyring) HasKey(ctx context.Context) (bool, error) {
	for e, err := range storage.All(ctx, r.store, keys.ControlKeyIDs("")) {
		if err != nil {
			return false, err
		}
		tenant, id, err := keys.ControlNames(e.Key)
		if err != nil {
			return false, err
		}
		project, environment, _ := strings.Cut(tenant, "/")
		_, inUse, err := readKeyWithID(ctx, r.store, operation.Namespace{Project: project, Environment: environment}, id)
		if err != nil || inUse != nil && inUse.valid(time.Now()) {
			return err == nil, err
		}
	}
	return false, nil
}

// readKeyWithID returns what is stored of a key and of its secret in use: nil if there is no such key.
func readKeyWithID(ctx context.Context, s storage.Storage, ns operation.Namespace, id string) (*keyIDRecord, *keyRecord, error) {
	all, secrets, err := readSecrets(ctx, s, ns, id, 1)
	if err != nil || all == nil {
		return nil, nil, err
	}
	return all, secrets[0], nil
}

// readSecrets returns what is stored of a key and of its newest secrets, most at most: nil if there is no such key.
func readSecrets(ctx context.Context, s storage.Storage, ns operation.Namespace, id string, most int) (*keyIDRecord, []*keyRecord, error) {
	all, err := readKeyID(ctx, s, ns, id)
	if err != nil || all == nil {
		return nil, nil, err
	}
	if len(all.Hashes) == 0 {
		return nil, nil, fmt.Errorf("%w: the key %q of %s has no secret", storage.ErrCorrupt, id, ns.Tenant())
	}
	secrets, err := readRecords(ctx, s, all.Hashes[:min(most, len(all.Hashes))])
	return all, secrets, err
}

// readRecords returns the records of secrets of a key by their hashes. One that is damaged, or is not there, says so. One of a newer release
// is an error: that release may accept the secret, and this one cannot end it.
func readRecords(ctx context.Context, s storage.Storage, hashes [][]byte) ([]*keyRecord, error) {
	var at [][]byte
	for _, hash := range hashes {
		at = append(at, keys.ControlKey(hex.EncodeToString(hash)))
	}
	values, err := reads.Get(ctx, s, at)
	if err != nil {
		return nil, err
	}
	var secrets []*keyRecord
	for i, raw := range values {
		k := &keyRecord{raw: raw}
		if k.unknown, err = record.Open(at[i], raw, records.Version, k); err != nil {
			k.damage = fmt.Errorf("control: %w", err)
		}
		if errors.Is(err, storage.ErrFutureFormat) {
			return nil, k.damage
		}
		secrets = append(secrets, k)
	}
	return secrets, nil
}

func sorted(texts []string) []string {
	s := slices.Clone(texts)
	slices.Sort(s)
	return slices.Compact(s)
}
