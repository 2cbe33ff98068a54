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

// ErrForgotten means that the acceptance of a signal or an update was forgotten, and cannot be made
// again: the digest of its plaintext is not known.
var ErrForgotten = errors.New("its acceptance was forgotten, and its payload is not JSON")

// ErrReused means that a signal or an update cannot be there again, because its ID was used for another one after its
// acceptance was forgotten. A workflow has one payload for an ID.
var ErrReused = errors.New("its ID was used again after its acceptance was forgotten")

// Reused is the error that wraps ErrReused.
func (r *Received) Reused() error {
	return fmt.Errorf("signal %q with the ID %q: %w", r.Name, r.ID, ErrReused)
}

// Again decides that a signal which was consumed is there again, in its place in the inbox, and that
// it is accepted. A repetition gets the first answer as long as that is remembered. The error wraps
// ErrReused if another signal with its ID waits.
func Again(ctx context.Context, s storage.Storage, r Received, now time.Time) (storage.Batch, error) {
	b, at := storage.Batch{}, r.At
	key := keys.Accepted(r.WorkflowID, r.Name, r.ID)
	put := func(key []byte, v any) error {
		raw, err := record.Seal(key, version, v, nil)
		b.If = append(b.If, storage.Absent(key))
		b.Ops = append(b.Ops, storage.Put(key, raw))
		return err
	}
	switch _, err := s.Get(ctx, keys.Signal(r.WorkflowID, r.Name, r.ID)); {
	case err == nil:
		return b, r.Reused()
	case !errors.Is(err, storage.ErrNotFound):
		return b, err
	}
	expires := now.Add(r.Memory)
	a, err := readAccepted(ctx, s, &Incoming{WorkflowID: r.WorkflowID, Name: r.Name, ID: r.ID})
	switch {
	case err != nil:
		return b, err
	case a != nil:
		// It may expire until the signal is there. And who has seen before that it has expired, and that no signal
		// waits, must find it changed.
		entry := func() []byte {
			return keys.ExpiringSignal(time.UnixMicro(a.ExpiresAt), r.WorkflowID, r.Name, r.ID)
		}
		b.Ops = append(b.Ops, storage.Delete(entry()))
		at = time.UnixMicro(a.AcceptedAt)
		a.ExpiresAt = max(a.ExpiresAt+1, expires.UnixMicro())
		later, err := record.Seal(key, version, a, a.unknown)
		if err != nil {
			return b, err
		}
		b.If = append(b.If, storage.Equal(key, a.raw))
		b.Ops = append(b.Ops, storage.Put(key, later), storage.Put(entry(), nil))
	case r.Codec != "":
		return b, fmt.Errorf("signal %q with the ID %q: %w", r.Name, r.ID, ErrForgotten)
	default:
		id := digest.Of(r.Data)
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

// A TakenUpdate is an update that a run had accepted, as its history has it.
type TakenUpdate struct {
	WorkflowID string
	Generation string
	ID, Name   string
	Codec      string // "" is JSON
	Data       []byte
	At         time.Time // when it was accepted
}

// Pending decides that u, which was accepted, is pending again, without an answer. It comes before
// those that were never accepted, in the order of At. If an update with its ID was admitted since the
// answer was forgotten, that one is pending.
func (u *TakenUpdate) Pending(ctx context.Context, s storage.Storage) (b storage.Batch, _ error) {
	key := keys.Update(u.WorkflowID, u.ID)
	_, err := s.Get(ctx, key)
	if err == nil {
		b.If = []storage.Condition{storage.Present(key)}
		return b, nil
	}
	if !errors.Is(err, storage.ErrNotFound) {
		return b, err
	}
	b, id, err := u.forget(ctx, s)
	if err != nil {
		return b, err
	}
	raw, err := record.Seal(key, version, &Update{
		Generation: u.Generation,
		Name:       u.Name,
		Codec:      u.Codec,
		Data:       u.Data,
		Digest:     id.Plain,
		Canonical:  id.Canonical,
		At:         u.At.UnixMicro(),
	}, nil)
	b.If = append(b.If, storage.Absent(key))
	b.Ops = append(b.Ops, storage.Put(key, raw), storage.Delete(keys.Answer(u.WorkflowID, u.ID)))
	return b, err
}

// Unanswered decides that u, which was answered, is accepted and has no answer. The error wraps ErrReused if an
// update with its ID is pending.
func (u *TakenUpdate) Unanswered(ctx context.Context, s storage.Storage) (storage.Batch, error) {
	key := keys.Update(u.WorkflowID, u.ID)
	switch _, err := s.Get(ctx, key); {
	case err == nil:
		return storage.Batch{}, fmt.Errorf("update %q with the ID %q: %w", u.Name, u.ID, ErrReused)
	case !errors.Is(err, storage.ErrNotFound):
		return storage.Batch{}, err
	}
	b, id, err := u.forget(ctx, s)
	if err != nil {
		return b, err
	}
	a := &Answer{
		Generation: u.Generation,
		Name:       u.Name,
		State:      Accepted,
		Digest:     id.Plain,
		Canonical:  id.Canonical,
		At:         u.At.UnixMicro(),
	}
	put, err := a.Put(u.WorkflowID, u.ID, time.Time{}, 0)
	b.If = append(b.If, storage.Absent(key))
	b.Ops = append(append(b.Ops, put...), storage.Delete(key)) // it stays absent
	return b, err
}

// forget decides on the record of an update as it is now, which the caller replaces: its answer does
// not expire any more. It returns what identifies the input of u.
func (u *TakenUpdate) forget(ctx context.Context, s storage.Storage) (b storage.Batch, id digest.Digest, _ error) {
	key := keys.Answer(u.WorkflowID, u.ID)
	raw, err := s.Get(ctx, key)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return b, id, err
	}
	var a *Answer
	if err == nil {
		if a, err = OpenAnswer(storage.Entry{Key: key, Value: raw}); err != nil {
			return b, id, err
		}
		b.If = []storage.Condition{storage.Equal(key, raw)}
		if a.ExpiresAt != 0 {
			b.Ops = []storage.Op{storage.Delete(keys.ExpiringAnswer(time.UnixMicro(a.ExpiresAt), u.WorkflowID, u.ID))}
		}
	} else {
		b.If = []storage.Condition{storage.Absent(key)}
	}
	switch {
	case u.Codec == "":
		return b, digest.Of(u.Data), nil
	case a == nil || a.State == Rejected || a.Name != u.Name: // of another update with this ID
		return b, id, fmt.Errorf("update %q with the ID %q: %w", u.Name, u.ID, ErrForgotten)
	}
	return b, digest.Digest{Plain: a.Digest, Canonical: a.Canonical}, nil
}
