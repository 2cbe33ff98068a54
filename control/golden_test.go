package control

import (
	"encoding/hex"
	"testing"

	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
)

// HTTP-4, HTTP-75 to HTTP-83: the bytes of the plane's records.
func TestGoldenRecords(t *testing.T) {
	const ns, id = "acme/prod", "01JGZ3Q8X0000000000000000A"
	hash := secretHash("a secret of twenty-four bytes")
	r := func(key []byte, v any, empty func() any) golden.Record {
		return golden.Record{Key: key, Version: recordVersion, Value: v, Empty: empty}
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
	row := func(a auditRow) golden.Record {
		a.ID, a.Action, a.Resource, a.Lane = id, "runs.create", "/v1/runs", "public"
		a.CreatedAt, a.CorrelationID, a.IP, a.UserAgent = 1767355200000000, "c1", "192.0.2.1", "curl/8"
		return r(keys.ControlAudit(ns, id), &a, func() any { return new(auditRow) })
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"key":         secret(keyRecord{}),
		"key-expires": secret(keyRecord{ExpiresAt: 1767441600000000}),
		"key-revoked": secret(keyRecord{RevokedAt: 1767355201000000}),
		"key-former":  secret(keyRecord{Until: 1767358800000000}),

		"keyid":         names(keyIDRecord{Changed: 1767355200000000}),
		"keyid-rotated": names(keyIDRecord{Changed: 1767355201000000, Hashes: [][]byte{secretHash("the secret before that one")}}),
		"keyid-revoked": names(keyIDRecord{Changed: 1767355202000000, RevokedAt: 1767355202000000}),

		"audit": row(auditRow{
			KeyID: "shop", Project: "acme", Environment: "prod", Result: resultSuccess, Status: 201,
			RunID: "order-42", IdempotencyKey: "k1", Deduped: true, Reason: "the customer called",
		}),
		"audit-refused": row(auditRow{Result: resultFailure, Status: 401, Code: "unauthorized", Count: 17}),

		"rate": r(keys.ControlRate(ns, "shop"), &rateRecord{Window: 29455920, Taken: 17}, func() any { return new(rateRecord) }),
		"hit":  r([]byte("ctl:hit:0000000029455920"), &hitRecord{Seconds: []int64{0, 2, 1}}, func() any { return new(hitRecord) }),
		// Cursors are no records, but clients keep them.
		"cursor-deployments": r([]byte("deployments:false"), &deploymentPlace{CreatedAt: 1767355200000000, ID: "shop-7"}, func() any { return new(deploymentPlace) }),
		"cursor-signals":     r([]byte("signals:r:true"), &signalPlace{Seq: 3, Rest: true, Name: "approved", ID: "evt_1"}, func() any { return new(signalPlace) }),
		"cursor-values":      r([]byte("values:r"), &valuePlace{Name: "progress"}, func() any { return new(valuePlace) }),
		"cursor-chunks":      r([]byte("chunks:stream:r:words"), &chunkPlace{Index: 7}, func() any { return new(chunkPlace) }),
		"cursor-events":      r([]byte("events:r:true"), &eventCursor{Checkpoint: 7, Position: 1}, func() any { return new(eventCursor) }),
		"cursor-events-id":   r([]byte("events:r:true"), &eventCursor{Checkpoint: 7, Position: 1, ID: id}, func() any { return new(eventCursor) }),

		"hits": r(keys.ControlHits(), &hitsRecord{Total: 3, Last: 1767355202000000}, func() any { return new(hitsRecord) }),
	})
}
