package acceptance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/digest"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A Received is a signal that a run had received, as its history has it.
type Received struct {
	WorkflowID string
	Generation string
	Seq        uint64 // its place in the order of acceptance
	Name, ID   string
	Codec      string // "" is JSON
	Data       []byte
	At         time.Time     // when it was received
	Memory     time.Duration // minimum time for which its acceptance is remembered, if that was forgotten
}

// ErrForgotten means that the acceptance of a signal was forgotten, and cannot be made again: the
// digest of its plaintext is not known.
var ErrForgotten = errors.New("its acceptance was forgotten, and its payload is not JSON")

// Again decides that a signal which was consumed is there again, in its place in the inbox, and that
// it is accepted. A repetition gets the first answer as long as that is remembered.
func Again(ctx context.Context, s storage.Storage, r Received, now time.Time) (storage.Batch, error) {
	b, at := storage.Batch{}, r.At
	key := keys.Accepted(r.WorkflowID, r.Name, r.ID)
	put := func(key []byte, v any) error {
		raw, err := record.Seal(key, version, v, nil)
		b.If = append(b.If, storage.Absent(key))
		b.Ops = append(b.Ops, storage.Put(key, raw))
		return err
	}
	a, err := readAccepted(ctx, s, &Incoming{WorkflowID: r.WorkflowID, Name: r.Name, ID: r.ID})
	switch {
	case err != nil:
		return b, err
	case a != nil:
		at = time.UnixMicro(a.AcceptedAt)
		b.If = append(b.If, storage.Present(key)) // it may expire until the signal is there
	case r.Codec != "":
		return b, fmt.Errorf("signal %q with the ID %q: %w", r.Name, r.ID, ErrForgotten)
	default:
		id, expires := digest.Of(r.Data), now.Add(r.Memory)
		err = put(key, &accepted{
			WorkflowID:       r.WorkflowID,
			SignalName:       r.Name,
			SignalID:         r.ID,
			SignalStorageKey: string(keys.Signal(r.WorkflowID, r.Name, r.ID)),
			AcceptedAt:       at.UnixMicro(),
			ExpiresAt:        expires.UnixMicro(),
			Digest:           id.Plain,
			Canonical:        id.Canonical,
			Generation:       r.Generation,
		})
		b.Ops = append(b.Ops, storage.Put(keys.ExpiringSignal(expires, r.WorkflowID, r.Name, r.ID), nil))
	}
	return b, errors.Join(err,
		put(keys.Signal(r.WorkflowID, r.Name, r.ID), &Payload{r.Generation, r.Codec, r.Data}),
		put(keys.Inbox(r.WorkflowID, r.Seq), &place{r.Name, r.ID, at.UnixMicro(), len(r.Data)}))
}
