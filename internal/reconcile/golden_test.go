package reconcile

import (
	"bytes"
	"errors"
	"testing"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// ACT-12, ACT-13, ACT-14, ACT-15, ACT-16, ACT-17, ACT-18, ACT-19, ACT-20, ACT-21,
// FMT-21, FMT-22: the bytes of the record, in each status.
func TestGoldenRecords(t *testing.T) {
	full := Record{
		Generation: "01JGZ3Q8X0000000000000000A",
		WorkflowID: "order-42", Activity: "charge", Operation: "3.1", IdempotencyKey: "order/42",
		Status: StatusIndeterminate, CreatedAt: 1767355200000000, UpdatedAt: 1767355200000001,
		Attempt: 1, Epoch: 1856226398208000, Token: 1856226398208001, Deadline: 1767355230000000,
		Timeout: 30e9, Settle: 10e9, Input: bytes.Repeat([]byte{0xd1}, 32),
	}
	is := func(change func(*Record)) golden.Record {
		r := full
		change(&r)
		return golden.Record{Key: r.key(), Version: Version, Value: &r, Empty: func() any { return new(Record) }}
	}
	beat := Beat{
		Generation: full.Generation, Activity: "import", Attempt: 2, At: 1767355200000000,
		Codec: "cbor", Progress: []byte(`{"row":7}`), key: keys.Beat(full.WorkflowID, full.Operation),
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"progress":  {Key: beat.key, Version: Version, Value: &beat, Empty: func() any { return new(Beat) }},
		"under-way": is(func(*Record) {}),
		"completed": is(func(r *Record) {
			r.Status, r.Settled, r.HasResult, r.Result, r.Codec = StatusCompleted, true, true, []byte(`"ch_1"`), "cbor"
		}),
		"unavailable": is(func(r *Record) {
			r.Status, r.Settled = StatusCompleted, true
			r.Error = &Failure{Category: activity.CategoryResultUnavailable, Message: "too large", Attempt: 1}
		}),
		"failed": is(func(r *Record) {
			r.Status, r.Settled = StatusFailed, true
			r.Error = &Failure{Message: "declined", Stack: "goroutine 1", Sentinel: "declined", Attempt: 1, Permanent: true, NoEffect: true}
		}),
		"timed-out": is(func(r *Record) {
			r.Status, r.Waited, r.Seen = StatusTimedOut, 5e9, "attempt 1 returned a result after its time was up"
			r.Error = &Failure{Category: activity.CategoryTimedOut, Message: "timed out after 30s", Sentinel: activity.ErrTimeout.Error(), Attempt: 1}
		}),
		"timed-out-unknown": is(func(r *Record) {
			r.Status, r.Settled = StatusTimedOut, true
			r.Error = &Failure{Category: activity.CategoryIndeterminate, Message: "there is no verifier; attempt 1: timed out after 30s", Attempt: 1}
		}),
		"cancelled": is(func(r *Record) { r.Status, r.Settled = StatusCancelled, true }),
		"retried": is(func(r *Record) {
			r.Attempt, r.Retry, r.RetriedAt, r.Spent = 3, 1, 1767355200000002, 2
			r.Error = &Failure{Category: activity.CategoryLost, Message: "its process died", Attempt: 2}
		}),
		"indeterminate": is(func(r *Record) {
			r.Settled = true
			r.Error = &Failure{Category: activity.CategoryIndeterminate, Message: "the verifier did not answer", Attempt: 1}
		}),
		"resolved": is(func(r *Record) {
			r.Status, r.Settled = StatusFailed, true
			r.Error = &Failure{Category: activity.CategoryResolved, Message: "bank says no", Attempt: 1}
		}),
		"by-hand": is(func(r *Record) {
			r.Status, r.Settled, r.HasResult, r.Result, r.By = StatusCompleted, true, true, []byte(`"ch_1"`), "ann"
		}),
		"withdrawn": is(func(r *Record) { r.Withdrawn = "the answer by ann is of another type" }),
		"contradicted-result": is(func(r *Record) {
			r.Settled, r.Seen = true, "attempt 1 returned a result after its time was up"
			r.SeenResult = &Observation{Codec: "cbor", Data: []byte(`"ch_1"`), Digest: bytes.Repeat([]byte{0xd2}, 32)}
			r.VerifiedResult = &Observation{Data: []byte(`"ch_2"`), Digest: bytes.Repeat([]byte{0xd3}, 32)}
			r.Error = &Failure{Category: activity.CategoryContradiction, Message: r.Seen, Other: "the verifier says that it completed, with another result", Attempt: 1}
		}),
		"contradiction": is(func(r *Record) {
			r.Settled = true
			r.Error = &Failure{Category: activity.CategoryContradiction, Message: "it returned", Other: "it did not complete", Attempt: 1}
		}),
	})
}

// ACT-29: a record can be read back, is found under its own key only, and keeps the fields of a
// later release.
func TestRecordRoundTrip(t *testing.T) {
	s := new(memory.Store)
	r := left(2)
	sealed, put, err := r.Seal()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), storage.Batch{If: []storage.Condition{r.Unchanged()}, Ops: []storage.Op{put}}); err != nil {
		t.Fatal(err)
	}
	got, err := ReadRecord(t.Context(), s, "o", "charge", "1", "k")
	if err != nil || got.Attempt != 2 || got.Status != StatusIndeterminate || !bytes.Equal(got.Raw(), sealed.Raw()) {
		t.Errorf("read %+v, %v", got, err)
	}
	if err := s.Commit(t.Context(), storage.Batch{If: []storage.Condition{r.Unchanged()}, Ops: []storage.Op{put}}); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("it still is not there: %v", err)
	}
	if err := s.Commit(t.Context(), storage.Batch{If: []storage.Condition{got.Unchanged()}}); err != nil || !bytes.Equal(got.Unchanged().Value, sealed.Unchanged().Value) {
		t.Errorf("it is not what it was: %v", err)
	}
	if _, err := ReadRecord(t.Context(), s, "o", "charge", "1", "other"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("another key: %v", err)
	}
	for generation, want := range map[string]int{"G": 1, "other": 0} {
		if rs, err := Records(t.Context(), s, "o", generation); err != nil || len(rs) != want {
			t.Errorf("records of life %s: %d, %v, want %d", generation, len(rs), err, want)
		}
	}
	if _, err := OpenRecord("o", "charge", "1", "other", got.Raw()); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("under another key: %v", err)
	}
}
