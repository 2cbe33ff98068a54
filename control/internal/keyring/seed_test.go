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
		want  *keyRecord
		id    *keyIDRecord
		inUse *keyRecord
		is    seeding
	}{
		"it is not there":              {first, nil, nil, seedNew},
		"it is there":                  {first, only, first, seedEqual},
		"with scopes in another order": {shop("first", "b", "a", "a"), only, first, seedEqual},
		"with other scopes":            {shop("first", "a"), only, first, seedChanged},
		"with another expiry":          {&expiring, only, first, seedChanged},
		"with another secret":          {second, only, first, seedSecret},
		"with a former secret":         {first, rotated, second, seedFormer},
		"revoked":                      {first, only, &revoked, seedRevoked},
		"revoked, with another secret": {second, only, &revoked, seedSecret},
	} {
		if got := decide(c.want, c.id, c.inUse); got != c.is {
			t.Errorf("%s: got %d, want %d", what, got, c.is)
		}
	}
}

// HTTP-7: however often a key was rotated, a change of it is small. A secret that its record has forgotten stays out.
func TestSecretsThatAKeyHasForgotten(t *testing.T) {
	s := new(memory.Store)
	home := operation.Namespace{Project: "p", Environment: "e"}
	var log bytes.Buffer
	r := New(s, slog.New(slog.NewTextHandler(&log, nil)), home, 120)
	shop := Key{ID: "shop", Project: "p", Environment: "e", Secret: "the first secret", Scopes: []string{"a"}}
	if err := r.Seed(t.Context(), shop); err != nil {
		t.Fatal(err)
	}
	for i := range remembered + 5 {
		id, secrets, err := readSecrets(t.Context(), s, home, "shop", newest)
		if err != nil {
			t.Fatal(err)
		}
		next := *secrets[0]
		next.Hash, next.raw = secretHash(strconv.Itoa(i)), nil
		c := rotateKey(id, secrets, &next, 0, time.Now())
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		if err := c.Batch.Check(storage.Size{Ops: 30, Bytes: 100 << 10}); err != nil {
			t.Fatalf("rotation %d: %v", i, err)
		}
		if err := s.Commit(t.Context(), c.Batch); err != nil {
			t.Fatal(err)
		}
	}
	before, _, err := readSecrets(t.Context(), s, home, "shop", 1)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(before.Hashes); n != remembered {
		t.Errorf("%d hashes, want %d", n, remembered)
	}
	// The last secrets that are remembered, as an earlier release left them.
	oldest := before.Hashes[remembered-1]
	k, err := readSecret(t.Context(), s, oldest)
	if err != nil {
		t.Fatal(err)
	}
	valid := *k
	valid.Until = 0
	c := &keyChange{}
	c.putSecret(&valid)
	if c.Err != nil {
		t.Fatal(c.Err)
	}
	if err := s.Commit(t.Context(), c.Batch); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := r.Seed(ctx, shop); err != nil {
		t.Error(err)
	}
	after, _, err := readSecrets(t.Context(), s, home, "shop", 1)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before.raw, after.raw) {
		t.Error("the first secret has come back")
	}
	if !strings.Contains(log.String(), "rotated out") {
		t.Errorf("the log is %q", log.String())
	}
	shop.Secret = "another secret"
	if err := r.Seed(ctx, shop); err != nil {
		t.Error(err)
	}
	if k, err = readSecret(t.Context(), s, oldest); err != nil || k.valid(time.Now()) {
		t.Errorf("a secret that the key has forgotten is valid, %v", err)
	}
}
