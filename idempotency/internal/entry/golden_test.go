package entry

import (
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
)

// HTTP-51: the bytes of the records of ledgers.
func TestGoldenRecords(t *testing.T) {
	k := Key{"shop:1", "refund-request", "req%1", "", "", "refund"}
	at := func(change func(e *Entry)) golden.Record {
		e := &Entry{
			Key:   k,
			State: InProgress, Fingerprint: "c14n1:sha256:" + strings.Repeat("0", 64), Request: []byte(`{"Cents":100}`),
			FirstSeen: 1767355200000000, Updated: 1767355200000000,
			Owner: []byte("0123456789abcdef"), Holder: "01JGZ3Q8X0000000000000000B", Epoch: 1853212, Attempt: 1,
			EffectID: "eff_01JGZ3Q8X0000000000000000C", Keep: 172800000000,
		}
		change(e)
		return golden.Record{Key: e.Place(e.Hash()), Version: version, Value: e, Empty: func() any { return new(Entry) }}
	}
	ended := func(e *Entry, s State) {
		e.State, e.Updated, e.Expires = s, 1767355201000000, 1767355201000000+e.Keep
	}
	order := func(s Sequence) golden.Record {
		return golden.Record{Key: keys.Order(k.Tenant, k.SourceType, "account:7"), Version: version, Value: &s, Empty: func() any { return new(Sequence) }}
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"entry-claimed": at(func(*Entry) {}),
		"entry-reserved": at(func(e *Entry) {
			e.Revision, e.IndexHash, e.Data, e.Opening = "v2", "sha256:00", []byte("deployment"), "OPENING"
		}),
		"entry-sealed": at(func(e *Entry) {
			ended(e, Sealed)
			e.SealedAt, e.Result = e.Updated, []byte(`"refunded"`)
		}),
		"entry-encrypted": at(func(e *Entry) {
			ended(e, Sealed)
			e.SealedAt, e.Result, e.ResultWith, e.RequestWith = e.Updated, []byte{0xff}, "aes", "aes"
		}),
		"entry-lost": at(func(e *Entry) {
			ended(e, Sealed)
			e.SealedAt, e.Unavailable, e.By, e.Why, e.Owner = e.Updated, "the operator says that it is lost", "ann", "asked the bank", nil
		}),
		"entry-failed": at(func(e *Entry) {
			ended(e, Failed)
			e.Failure, e.Sentinel = "no such payment", "not found"
		}),
		"entry-released": at(func(e *Entry) { ended(e, Released) }),
		"entry-indeterminate": at(func(e *Entry) {
			e.State, e.Failure, e.Doubt, e.Attempt = Indeterminate, "timed out", true, 2
		}),
		"entry-again":         at(func(e *Entry) { e.Again = true }),
		"entry-ordered":       at(func(e *Entry) { e.OrderSource, e.OrderVersion = "account:7", "12" }),
		"sequence":            order(Sequence{Version: "12", SourceID: k.SourceID, Hash: k.Hash(), Epoch: 1853212}),
		"sequence-slot":       order(Sequence{Version: "12", SourceID: k.SourceID, Hash: k.Hash(), Epoch: 1853212, SlotSourceID: "req2", SlotHash: strings.Repeat("a", 64)}),
		"sequence-slot-epoch": order(Sequence{SlotSourceID: "req2", SlotHash: strings.Repeat("a", 64), SlotEpoch: 1853213}),
	})
}
