package keys

import (
	"fmt"
	"time"

	"github.com/weft-go/weft/storage"
)

// Claim is the key of what is known of an idempotency key:
// idem:{tenant}:{source type}:{source id}:{hash}.
func Claim(tenant, sourceType, sourceID, hash string) []byte {
	return key("idem:", tenant, sourceType, sourceID, hash)
}

// Claims is the range of the claims whose first components are these.
func Claims(components ...string) storage.Range {
	k := key("idem:", components...)
	if len(components) > 0 {
		k = append(k, ':')
	}
	return storage.Prefix(k)
}

// ClaimNames splits the key of a claim.
func ClaimNames(k []byte) (tenant, sourceType, sourceID, hash string, err error) {
	return claimNames(k, 1)
}

// ExpiringClaim is the key that says when a claim may be forgotten:
// idemexp:{time}:{tenant}:{source type}:{source id}:{hash}.
func ExpiringClaim(at time.Time, tenant, sourceType, sourceID, hash string) []byte {
	return storage.AppendKey(append(appendTime([]byte("idemexp:"), at), ':'), tenant, sourceType, sourceID, hash)
}

// ClaimsExpiredAt is the range of the ExpiringClaim keys that are due at a time.
func ClaimsExpiredAt(at time.Time) storage.Range {
	return storage.Range{Start: []byte("idemexp:"), End: append(appendTime([]byte("idemexp:"), at), ';')}
}

// ExpiringClaimNames splits a key of ExpiringClaim.
func ExpiringClaimNames(k []byte) (at time.Time, tenant, sourceType, sourceID, hash string, err error) {
	if at, err = timeIn(k, 1); err == nil {
		tenant, sourceType, sourceID, hash, err = claimNames(k, 2)
	}
	return at, tenant, sourceType, sourceID, hash, err
}

func claimNames(k []byte, first int) (tenant, sourceType, sourceID, hash string, err error) {
	parts, err := storage.SplitKey(k)
	if err != nil || len(parts) != first+4 {
		return "", "", "", "", fmt.Errorf("%w: key %q", storage.ErrCorrupt, k)
	}
	return parts[first], parts[first+1], parts[first+2], parts[first+3], nil
}

// Order is the key of the order of the events of one source: idemver:{tenant}:{source type}:{source}.
func Order(tenant, sourceType, source string) []byte {
	return key("idemver:", tenant, sourceType, source)
}

// Orders is the range of the Order keys of one source type.
func Orders(tenant, sourceType string) storage.Range {
	return storage.Prefix(append(key("idemver:", tenant, sourceType), ':'))
}

// Holder is the key of the lease of whoever holds claims: idemown:{holder}.
func Holder(holder string) []byte { return key("idemown:", holder) }

// Holders is the range of all Holder keys.
func Holders() storage.Range { return storage.Prefix([]byte("idemown:")) }
