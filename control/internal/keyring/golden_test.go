package keyring

import (
	"encoding/hex"
	"testing"

	"github.com/weft-go/weft/control/internal/records"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
)

// HTTP-4: the bytes of the records of keys, and of how many requests they have made.
func TestGoldenRecords(t *testing.T) {
	const ns = "acme/prod"
	hash := secretHash("a secret of twenty-four bytes")
	r := func(key []byte, v any, empty func() any) golden.Record {
		return golden.Record{Key: key, Version: records.Version, Value: v, Empty: empty}
	}
	secret := func(k keyRecord) golden.Record {
		k.ID, k.Project, k.Environment, k.Hash, k.CreatedAt = "shop", "acme", "prod", hash, 1767355200000000
		k.Scopes = []string{"runs:read", "trigger:write"}
		return r(keys.ControlKey(hex.EncodeToString(hash)), &k, func() any { return new(keyRecord) })
	}
	names := func(k keyIDRecord) golden.Record {
		k.Hashes, k.CreatedAt = append([][]byte{hash}, k.Hashes...), 1767355200000000
		return r(keys.ControlKeyID(ns, "shop"), &k, func() any { return new(keyIDRecord) })
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"key":         secret(keyRecord{}),
		"key-expires": secret(keyRecord{ExpiresAt: 1767441600000000}),
		"key-revoked": secret(keyRecord{RevokedAt: 1767355201000000}),
		"key-former":  secret(keyRecord{Until: 1767358800000000}),

		"keyid":         names(keyIDRecord{Changed: 1767355200000000}),
		"keyid-rotated": names(keyIDRecord{Changed: 1767355201000000, Hashes: [][]byte{secretHash("the secret before that one")}}),
		"keyid-revoked": names(keyIDRecord{Changed: 1767355202000000, RevokedAt: 1767355202000000}),

		"rate": r(keys.ControlRate(ns, "shop"), &rateRecord{Window: 29455920, Taken: 17}, func() any { return new(rateRecord) }),
	})
}
