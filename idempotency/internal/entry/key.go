package entry

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/weft-go/weft/internal/keys"
)

// A Key names one effect. See idempotency.Key, which converts to it.
type Key struct {
	Tenant     string `cbor:"1,keyasint,omitempty"`
	SourceType string `cbor:"2,keyasint"`
	SourceID   string `cbor:"3,keyasint,omitempty"`
	Revision   string `cbor:"4,keyasint,omitempty"`
	IndexHash  string `cbor:"5,keyasint,omitempty"`
	Action     string `cbor:"6,keyasint,omitempty"`
}

// Hash returns the name of the effect for external systems and for logs.
func (k Key) Hash() string {
	b := make([]byte, 0, 256)
	b = append(b, "weft-idem-1"...)
	for _, s := range [...]string{k.Tenant, k.SourceType, k.SourceID, k.Revision, k.IndexHash, k.Action} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Place returns where the entry of k is stored.
func (k Key) Place(hash string) []byte { return keys.Claim(k.Tenant, k.SourceType, k.SourceID, hash) }

// Expiring returns where it is stored that the entry of k expires at a time, in microseconds since 1970.
func (k Key) Expiring(hash string, at int64) []byte {
	return keys.ExpiringClaim(time.UnixMicro(at), k.Tenant, k.SourceType, k.SourceID, hash)
}
