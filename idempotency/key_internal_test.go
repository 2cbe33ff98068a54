package idempotency

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/internal/keys"
)

// nasty are parts of names that would be mistaken for others without framing or escaping.
var nasty = rapid.SampledFrom([]string{
	"", "a", "b", "ab", ":", "::", "%", "%3A", "%25", "a:b", "a%3Ab", "/", " ", "é", "e\u0301", "A", "\x01", "\u0000", "\n", "\xff",
	"\x00\x00\x00\x01", "weft-idem-1", "0", "00", ";", "~", "\U0010ffff", strings.Repeat("x", 255),
})

func nastyKey(t *rapid.T, label string) Key {
	part := func(field string) string {
		return strings.Join(rapid.SliceOfN(nasty, 0, 3).Draw(t, label+field), "")
	}
	return Key{part("tenant"), part("type"), part("id"), part("revision"), part("index"), part("action")}
}

// FEN-1, FEN-2, FEN-7, FEN-8, FEN-9, FEN-10: keys that differ in any field have other hashes, and keys that do
// not have equal ones.
func TestHashIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := nastyKey(t, "a "), nastyKey(t, "b ")
		if (a.Hash() == b.Hash()) != (a == b) {
			t.Fatalf("%q and %q have the hashes %s and %s", a, b, a.Hash(), b.Hash())
		}
		fields := [...]string{a.Tenant, a.SourceType, a.SourceID, a.Revision, a.IndexHash, a.Action}
		i := rapid.IntRange(0, 4).Draw(t, "field")
		j := rapid.IntRange(i+1, 5).Draw(t, "other")
		cut := rapid.IntRange(0, len(fields[i])).Draw(t, "cut")
		fields[i], fields[j] = fields[i][:cut], fields[i][cut:]+fields[j] // the same text, framed otherwise
		moved := Key{fields[0], fields[1], fields[2], fields[3], fields[4], fields[5]}
		if (moved.Hash() == a.Hash()) != (moved == a) {
			t.Fatalf("%q and %q have the same hash", a, moved)
		}
	})
}

// FEN-3, FEN-4: the hash is of the six fields and of nothing else. It is written out here byte by byte: it
// must be the same in all releases.
func TestHashIsWhatTheContractSays(t *testing.T) {
	k := Key{"shop:1", "refund-request", "req%1", "v2", "", "refund"}
	sum := sha256.Sum256([]byte("weft-idem-1" +
		"\x00\x00\x00\x06shop:1" +
		"\x00\x00\x00\x0erefund-request" +
		"\x00\x00\x00\x05req%1" +
		"\x00\x00\x00\x02v2" +
		"\x00\x00\x00\x00" +
		"\x00\x00\x00\x06refund"))
	if got, want := k.Hash(), hex.EncodeToString(sum[:]); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FEN-5, FEN-6, FEN-7, FEN-8: which fields are required, and that no key that Check allows is stored where
// another one is.
func TestKeysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := nastyKey(t, "")
		err := k.Check()
		if k.SourceType == "" || k.SourceID == "" && k.IndexHash == "" {
			if err == nil {
				t.Fatalf("%q lacks what is required, and is accepted", k)
			}
		}
		if err != nil {
			return
		}
		hash := k.Hash()
		tenant, sourceType, sourceID, h, err := keys.ClaimNames(entry.Key(k).Place(hash))
		if err != nil || tenant != k.Tenant || sourceType != k.SourceType || sourceID != k.SourceID || h != hash {
			t.Fatalf("%q is stored as %q, which is of %q, %q, %q, %s, %v", k, entry.Key(k).Place(hash), tenant, sourceType, sourceID, h, err)
		}
		micro := rapid.Int64Range(0, 9_999_999_999_999_999).Draw(t, "expires")
		expiring := entry.Key(k).Expiring(hash, micro)
		at, tenant, sourceType, sourceID, h, err := keys.ExpiringClaimNames(expiring)
		if err != nil || at.UnixMicro() != micro || tenant != k.Tenant || sourceType != k.SourceType || sourceID != k.SourceID || h != hash {
			t.Fatalf("%q expires as %q, which is of %v, %q, %q, %q, %s, %v", k, expiring, at, tenant, sourceType, sourceID, h, err)
		}
		for _, now := range []int64{micro - 1, micro, micro + 1} {
			r := keys.ClaimsExpiredAt(time.UnixMicro(now))
			in := string(r.Start) <= string(expiring) && string(expiring) < string(r.End)
			if now >= 0 && now <= 9_999_999_999_999_999 && in != (now >= micro) {
				t.Fatalf("at %d, what expires at %d is due: %v", now, micro, in)
			}
		}
	})
}

// FEN-10: a tenant's range has its own keys and no other's.
func TestRangesOfTenants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, other := nastyKey(t, "k "), nastyKey(t, "other ")
		at := string(entry.Key(k).Place(k.Hash()))
		for n, parts := range [][]string{nil, {other.Tenant}, {other.Tenant, other.SourceType}, {other.Tenant, other.SourceType, other.SourceID}} {
			r := keys.Claims(parts...)
			in := at >= string(r.Start) && (r.End == nil || at < string(r.End))
			want := fmt.Sprintf("%q", []string{k.Tenant, k.SourceType, k.SourceID}[:n]) == fmt.Sprintf("%q", parts) || n == 0
			if in != want {
				t.Fatalf("%q is in the range of %q: %v", k, parts, in)
			}
		}
	})
}

// FEN-5 to FEN-8: a key that lacks what is required, is too long, or is no text is refused.
func TestKeysThatAreRefused(t *testing.T) {
	good := Key{SourceType: "t", SourceID: "s"}
	for _, c := range []struct {
		change func(*Key)
		ok     bool
	}{
		{func(*Key) {}, true},
		{func(k *Key) { k.SourceType = "" }, false},
		{func(k *Key) { k.SourceID = "" }, false},
		{func(k *Key) { k.SourceID, k.IndexHash = "", "i" }, true},
		{func(k *Key) { k.Tenant = strings.Repeat("x", 100) }, true},
		{func(k *Key) { k.Tenant = strings.Repeat("x", 101) }, false},
		{func(k *Key) { k.SourceType = strings.Repeat("x", 201) }, false},
		{func(k *Key) { k.SourceID = strings.Repeat("é", 128) }, false},
		{func(k *Key) { k.Revision = strings.Repeat("x", 256) }, false},
		{func(k *Key) { k.IndexHash = strings.Repeat("x", 256) }, false},
		{func(k *Key) { k.Action = strings.Repeat("x", 101) }, false},
		{func(k *Key) { k.Revision = "\xff" }, false},
		{func(k *Key) { k.Action = "a\x00" }, false},
		{func(k *Key) { k.SourceID = ":%/\n" }, true},
	} {
		k := good
		c.change(&k)
		if err := k.Check(); (err == nil) != c.ok {
			t.Errorf("%q: %v", k, err)
		}
	}
}
