package control

import (
	"testing"
	"time"
)

// HTTP-9: what New makes of a key of Config.Keys.
func TestSeed(t *testing.T) {
	now := time.Unix(1767355200, 0)
	key := func(secret string, scopes ...string) *keyRecord {
		return newKeyRecord(Key{ID: "shop", Project: "p", Environment: "e", Secret: secret, Scopes: scopes}, now)
	}
	first, second := key("first", "a", "b"), key("second", "a", "b")
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
		"with scopes in another order": {key("first", "b", "a", "a"), only, first, seedEqual},
		"with other scopes":            {key("first", "a"), only, first, seedChanged},
		"with another expiry":          {&expiring, only, first, seedChanged},
		"with another secret":          {second, only, first, seedSecret},
		"with a former secret":         {first, rotated, second, seedFormer},
		"revoked":                      {first, only, &revoked, seedRevoked},
		"revoked, with another secret": {second, only, &revoked, seedSecret},
	} {
		if got := seed(c.want, c.id, c.inUse); got != c.is {
			t.Errorf("%s: got %d, want %d", what, got, c.is)
		}
	}
}
