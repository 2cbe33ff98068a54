package keyring

import (
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/netip"
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
