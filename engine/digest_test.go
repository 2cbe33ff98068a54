package engine_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// Two requests with the same JSON are the same, in whatever order its members are, and however its
// numbers are spelled. This holds also for what an earlier release has stored, as far as it can be
// known, and an earlier release finds the digest that it would have stored itself.
func TestSameJSONInAnyOrder(t *testing.T) {
	const (
		asSent   = `{"sku":"apple","cents":300,"gift":{"to":"bob","from":"ann"}}`
		reorders = `{ "gift": {"from":"ann","to":"bob"}, "cents": 3e2, "sku": "apple" }`
		another  = `{"sku":"apple","cents":301,"gift":{"to":"bob","from":"ann"}}`
	)
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		e := made(t, s)
		defer e.Close()
		begin := func(input string) error {
			_, err := e.StartWorkflow(ctx, &engine.StartRequest{Workflow: "order", ID: "o", Input: json.RawMessage(input)})
			return err
		}
		id := "evt_1"
		send := func(payload string) error {
			_, err := e.SendSignal(ctx, signal.Message{WorkflowID: "o", Name: "paid", ID: &id, Payload: json.RawMessage(payload)})
			return err
		}
		same := func(input string) {
			t.Helper()
			if err := begin(input); err != nil {
				t.Errorf("start again with %s: %v", input, err)
			}
			if err := send(input); err != nil {
				t.Errorf("signal again with %s: %v", input, err)
			}
		}
		differs := func(input string) {
			t.Helper()
			if err := begin(input); !errors.Is(err, engine.ErrExists) {
				t.Errorf("start with %s: %v, want ErrExists", input, err)
			}
			if err := send(input); !errors.Is(err, signal.ErrConflict) {
				t.Errorf("signal with %s: %v, want ErrConflict", input, err)
			}
		}
		same(asSent)
		same(asSent)
		same(reorders)
		differs(another)

		// The digest of an earlier release is there, and is all that it reads.
		sum := sha256.Sum256([]byte(asSent))
		wf, err := journal.Load(ctx, s, "o")
		if err != nil || !slices.Equal(wf.Digest, sum[:]) {
			t.Fatalf("stored is the digest %x, %v; an earlier release looks for %x", wf.Digest, err, sum)
		}
		asBefore(t, s, keys.Workflow("o"), 33)
		asBefore(t, s, keys.Accepted("o", "paid", id), 9)
		same(asSent)
		differs(another)
		differs(reorders) // nothing tells that this is the same
	})
}

// asBefore removes a field from a record, as if a release had stored it that does not know the field.
func asBefore(t *testing.T, s storage.Storage, key []byte, field uint64) {
	t.Helper()
	raw, err := s.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[uint64]any
	if _, err := record.Open(key, raw, journal.Version, &fields); err != nil {
		t.Fatal(err)
	}
	if _, ok := fields[field]; !ok {
		t.Fatalf("%q has no field %d", key, field)
	}
	delete(fields, field)
	if raw, err = record.Seal(key, journal.Version, fields, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(key, raw)}}); err != nil {
		t.Fatal(err)
	}
}
