package keyring

import (
	"bytes"
	"context"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/internal/records"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// putRecord stores k, of an admin of the default namespace, where the record of a secret is.
func putRecord(t *testing.T, s storage.Storage, secret string, k keyRecord) {
	t.Helper()
	k.Project, k.Environment, k.Scopes = "default", "default", []string{"admin"}
	at := keys.ControlKey(hex.EncodeToString(secretHash(secret)))
	raw, err := record.Seal(at, records.Version, &k, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(at, raw)}}); err != nil {
		t.Fatal(err)
	}
}

// HTTP-6: a record counts only if it is of the very secret by whose hash it was found, of the same length.
func TestARecordOfAnotherSecret(t *testing.T) {
	const stranger = "a-secret-that-nobody-was-given"
	s := new(memory.Store)
	r := New(s, slog.New(slog.DiscardHandler), operation.Namespace{Project: "default", Environment: "default"}, 120)
	for what, hash := range map[string][]byte{"its own": secretHash(stranger), "another": secretHash("x"), "a shorter one": secretHash(stranger)[:31], "none": nil} {
		putRecord(t, s, stranger, keyRecord{ID: "k", Hash: hash})
		want := 0
		if what != "its own" {
			want = http.StatusUnauthorized
		}
		got := 0
		who, bad := r.Authenticate(t.Context(), http.Header{"Authorization": {"Bearer " + stranger}}, netip.MustParseAddr("192.0.2.1"))
		if bad != nil {
			got = bad.Status
		}
		if got != want || got == 0 && who.ID != "k" {
			t.Errorf("the hash is %s: got %v, %v, want the status %d", what, who, bad, want)
		}
	}
}

// HTTP-9: what New makes of a key of Config.Keys.
func TestSeed(t *testing.T) {
	now := time.Unix(1767355200, 0)
	shop := func(secret string, scopes ...string) *keyRecord {
		return newKeyRecord(Key{ID: "shop", Project: "p", Environment: "e", Secret: secret, Scopes: scopes}, now)
	}
	first, second := shop("first", "a", "b"), shop("second", "a", "b")
	revoked, expiring := *first, *first
	revoked.RevokedAt, expiring.ExpiresAt = 1, 1
	only := &keyIDRecord{Hashes: [][]byte{first.Hash}}
	rotated := &keyIDRecord{Hashes: [][]byte{second.Hash, first.Hash}}
	for what, c := range map[string]struct {
		want, before *keyRecord
		id           *keyIDRecord
		inUse        *keyRecord
		is           seeding
	}{
		"it is not there":                {first, nil, nil, nil, seedNew},
		"it is there":                    {first, first, only, first, seedEqual},
		"it has just come":               {first, nil, only, first, seedEqual},
		"with scopes in another order":   {shop("first", "b", "a", "a"), first, only, first, seedEqual},
		"with other scopes":              {shop("first", "a"), first, only, first, seedChanged},
		"with another expiry":            {&expiring, first, only, first, seedChanged},
		"with another secret":            {second, nil, only, first, seedSecret},
		"with a former secret":           {first, first, rotated, second, seedFormer},
		"with a secret that is long out": {shop("zeroth"), shop("zeroth"), rotated, second, seedFormer},
		"revoked":                        {first, &revoked, only, &revoked, seedRevoked},
		"revoked, with another secret":   {second, nil, only, &revoked, seedSecret},
	} {
		if got := decide(c.want, c.before, c.id, c.inUse); got != c.is {
			t.Errorf("%s: got %d, want %d", what, got, c.is)
		}
	}
}

// HTTP-7: however often a key was rotated, a change of it is small. A secret that is not in its record any more stays out.
func TestSecretsThatAKeyHasForgotten(t *testing.T) {
	s := new(memory.Store)
	home := operation.Namespace{Project: "p", Environment: "e"}
	var log bytes.Buffer
	r := New(s, slog.New(slog.NewTextHandler(&log, nil)), home, 120)
	shop := Key{ID: "shop", Project: "p", Environment: "e", Secret: "the first secret", Scopes: []string{"a"}}
	outdated := shop
	for i := range newest + 5 {
		if err := r.Seed(t.Context(), shop); err != nil {
			t.Fatal(err)
		}
		shop.Secret = strconv.Itoa(i)
	}
	before, err := readKeyID(t.Context(), s, home, "shop")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(before.Hashes); n != newest {
		t.Errorf("%d hashes, want %d", n, newest)
	}
	log.Reset()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := r.Seed(ctx, outdated); err != nil {
		t.Error(err)
	}
	after, err := readKeyID(t.Context(), s, home, "shop")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before.raw, after.raw) {
		t.Error("the first secret has come back")
	}
	if !strings.Contains(log.String(), "rotated out") {
		t.Errorf("the log is %q", log.String())
	}
}

// HTTP-7: a process whose clock is ahead, so that all secrets are over for it, revokes those that leave the record of a key nevertheless.
func TestRevocationByAClockAhead(t *testing.T) {
	now := time.Now()
	id := &keyIDRecord{at: []byte("id")}
	var secrets []*keyRecord
	for i := range newest {
		k := newKeyRecord(Key{ID: "shop", Secret: strconv.Itoa(i)}, now)
		k.Until = now.Add(time.Minute).UnixMicro()
		id.Hashes, secrets = append(id.Hashes, k.Hash), append(secrets, k)
	}
	ahead := now.Add(time.Hour)
	next := newKeyRecord(Key{ID: "shop", Secret: "next"}, now)
	for what, c := range map[string]struct {
		change *keyChange
		of     []*keyRecord
	}{
		"a rotation":   {rotateKey(id, secrets, next, time.Minute, ahead), secrets[newest-1:]},
		"a revocation": {revokeKey(id, secrets, ahead), secrets},
	} {
		s := new(memory.Store)
		if err := s.Commit(t.Context(), c.change.Batch); err != nil {
			t.Fatal(err)
		}
		for i, k := range c.of {
			if k, err := readSecret(t.Context(), s, k.Hash); err != nil || k == nil || k.valid(now) {
				t.Errorf("%s: secret %d of %d is valid, %v", what, i+1, len(c.of), err)
			}
		}
	}
}

// An interrupted store calls another process before one of its calls.
type interrupted struct {
	storage.Storage
	calls atomic.Int64
	at    int64
	other func()
}

func (s *interrupted) Unwrap() storage.Storage { return s.Storage }

func (s *interrupted) call() {
	if s.calls.Add(1) == s.at {
		s.other()
	}
}

func (s *interrupted) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.call()
	return s.Storage.Get(ctx, key)
}

func (s *interrupted) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	s.call()
	return s.Storage.Scan(ctx, r)
}

func (s *interrupted) Commit(ctx context.Context, b storage.Batch) error {
	s.call()
	return s.Storage.Commit(ctx, b)
}

// HTTP-7, HTTP-9: two processes start at once with another secret of a key, of which an earlier release has left more secrets valid than a
// key can have. Whatever call of one of them the other comes before, the new secret is in use, those are revoked, and nobody is told that
// it was rotated out.
func TestTwoProcessesSeedAtOnce(t *testing.T) {
	home := operation.Namespace{Project: "p", Environment: "e"}
	for at := int64(1); ; at++ {
		inner := new(memory.Store)
		var log bytes.Buffer
		seed := func(s storage.Storage, secret string) {
			t.Helper()
			shop := Key{ID: "shop", Project: "p", Environment: "e", Secret: secret, Scopes: []string{"a"}}
			if err := New(s, slog.New(slog.NewTextHandler(&log, nil)), home, 120).Seed(t.Context(), shop); err != nil {
				t.Fatalf("before call %d: %v", at, err)
			}
		}
		seed(inner, "first")
		id, err := readKeyID(t.Context(), inner, home, "shop")
		if err != nil {
			t.Fatal(err)
		}
		c := &keyChange{}
		for i := range 2 * newest {
			old := newKeyRecord(Key{ID: "shop", Project: "p", Environment: "e", Secret: strconv.Itoa(i)}, time.Now())
			id.Hashes = append(id.Hashes, old.Hash)
			c.putSecret(old)
		}
		c.Put(id.at, id.raw, id, nil)
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		if err := inner.Commit(t.Context(), c.Batch); err != nil {
			t.Fatal(err)
		}

		s := &interrupted{Storage: inner, at: at, other: func() { seed(inner, "second") }}
		seed(s, "second")
		if s.calls.Load() < at {
			if at < 9 {
				t.Errorf("%d calls: too few to be of use", at)
			}
			return
		}
		if strings.Contains(log.String(), "rotated out") {
			t.Errorf("before call %d: the log is %q", at, log.String())
		}
		if _, inUse, err := readKeyWithID(t.Context(), inner, home, "shop"); err != nil || !bytes.Equal(inUse.Hash, secretHash("second")) {
			t.Errorf("before call %d: another secret is in use, %v", at, err)
		}
		older, err := readRecords(t.Context(), inner, id.Hashes[newest:])
		if err != nil {
			t.Fatal(err)
		}
		for i, k := range older {
			if k.valid(time.Now()) {
				t.Errorf("before call %d: secret %d is valid", at, newest+i)
			}
		}
	}
}
