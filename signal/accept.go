package signal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

const version = 1

// An Incoming is a signal that is to be accepted, encoded.
type Incoming struct {
	WorkflowID, Generation, Name, ID string
	Codec                            string // "" is JSON
	Data                             []byte
	Digest                           []byte // of the plaintext
	At, ExpiresAt                    time.Time
}

// accepted is the accepted response: sigres:{id}:{name}:{signal id}. Times are
// in microseconds since 1970.
type accepted struct {
	WorkflowID       string `cbor:"1,keyasint"`
	SignalName       string `cbor:"2,keyasint"`
	SignalID         string `cbor:"3,keyasint"`
	SignalStorageKey string `cbor:"4,keyasint"`
	AcceptedAt       int64  `cbor:"5,keyasint"`
	ExpiresAt        int64  `cbor:"6,keyasint"`
	Digest           []byte `cbor:"7,keyasint"`
	Generation       string `cbor:"8,keyasint"`
}

func (a *accepted) response() Accepted {
	return Accepted{
		Accepted:         true,
		WorkflowID:       a.WorkflowID,
		SignalName:       a.SignalName,
		SignalID:         a.SignalID,
		AcceptedAt:       time.UnixMicro(a.AcceptedAt).UTC(),
		SignalStorageKey: a.SignalStorageKey,
	}
}

// A Payload is an accepted signal that was not consumed: sig:{id}:{name}:{signal id}.
type Payload struct {
	Generation string `cbor:"1,keyasint"`
	Codec      string `cbor:"2,keyasint,omitempty"`
	Data       []byte `cbor:"3,keyasint,omitempty"`
}

// place is a place in the order of acceptance: inbox:{id}:{seq}.
type place struct {
	Name string `cbor:"1,keyasint"`
	ID   string `cbor:"2,keyasint"`
}

// counter is how many signals a workflow has accepted: sigseq:{id}.
type counter struct {
	N uint64 `cbor:"1,keyasint"`
}

// Earlier returns the answer that was given to in's ID before, and false if
// there was none. Another payload is a *ConflictError.
func Earlier(ctx context.Context, s storage.Storage, in *Incoming) (Accepted, bool, error) {
	key := keys.Accepted(in.WorkflowID, in.Name, in.ID)
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return Accepted{}, false, nil
	}
	if err != nil {
		return Accepted{}, false, err
	}
	var a accepted
	if _, err := record.Open(key, raw, version, &a); err != nil {
		return Accepted{}, false, err
	}
	if !bytes.Equal(a.Digest, in.Digest) {
		return Accepted{}, false, &ConflictError{in.WorkflowID, in.Name, in.ID}
	}
	return a.response(), true, nil
}

// Counter reads the stored acceptance counter of a workflow; nil is none.
func Counter(ctx context.Context, s storage.Storage, workflowID string) ([]byte, error) {
	raw, err := s.Get(ctx, keys.SignalCounter(workflowID))
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	return raw, err
}

// Accept decides the acceptance of in: payload, place in the inbox, accepted
// response and counter, if there is no payload and no response and the counter
// is what was read. The caller adds its condition on the workflow.
func Accept(in *Incoming, counted []byte) (storage.Batch, Accepted, error) {
	id := in.WorkflowID
	payloadKey := keys.Signal(id, in.Name, in.ID)
	acceptedKey := keys.Accepted(id, in.Name, in.ID)
	counterKey := keys.SignalCounter(id)

	var n counter
	var keep record.Unknown
	same := storage.Absent(counterKey)
	if counted != nil {
		var err error
		if keep, err = record.Open(counterKey, counted, version, &n); err != nil {
			return storage.Batch{}, Accepted{}, err
		}
		same = storage.Equal(counterKey, counted)
	}
	n.N++
	a := accepted{
		WorkflowID:       id,
		SignalName:       in.Name,
		SignalID:         in.ID,
		SignalStorageKey: string(payloadKey),
		AcceptedAt:       in.At.UnixMicro(),
		ExpiresAt:        in.ExpiresAt.UnixMicro(),
		Digest:           in.Digest,
		Generation:       in.Generation,
	}
	b := storage.Batch{If: []storage.Condition{storage.Absent(acceptedKey), storage.Absent(payloadKey), same}}
	inboxKey := keys.Inbox(id, n.N)
	for _, r := range []struct {
		key  []byte
		v    any
		keep record.Unknown
	}{
		{payloadKey, &Payload{in.Generation, in.Codec, in.Data}, nil},
		{inboxKey, &place{in.Name, in.ID}, nil},
		{acceptedKey, &a, nil},
		{counterKey, &n, keep},
	} {
		raw, err := record.Seal(r.key, version, r.v, r.keep)
		if err != nil {
			return storage.Batch{}, Accepted{}, err
		}
		b.Ops = append(b.Ops, storage.Put(r.key, raw))
	}
	return b, a.response(), nil
}

// A Waiting is a signal in a workflow's inbox.
type Waiting struct {
	Seq      uint64
	Name, ID string
}

// Inbox reads the next page of a workflow's inbox, from seq on, and says whether
// it was the last.
func Inbox(ctx context.Context, s storage.Storage, workflowID string, seq uint64, limit int) (page []Waiting, last bool, err error) {
	r := keys.InboxFrom(workflowID, seq)
	r.Limit = limit
	entries, err := s.Scan(ctx, r)
	if err != nil {
		return nil, false, err
	}
	for _, e := range entries {
		n, err := keys.Number(e.Key)
		if err != nil {
			return nil, false, err
		}
		var p place
		if _, err := record.Open(e.Key, e.Value, version, &p); err != nil {
			return nil, false, err
		}
		page = append(page, Waiting{n, p.Name, p.ID})
	}
	return page, len(entries) < limit, nil
}

// Read reads the payload of a waiting signal.
func Read(ctx context.Context, s storage.Storage, workflowID string, w Waiting) (*Payload, error) {
	key := keys.Signal(workflowID, w.Name, w.ID)
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, fmt.Errorf("%w: record %q is missing", storage.ErrCorrupt, key)
	}
	if err != nil {
		return nil, err
	}
	var p Payload
	_, err = record.Open(key, raw, version, &p)
	return &p, err
}

// Consume is what the checkpoint that records a receipt does to the inbox.
func Consume(workflowID string, w Waiting) []storage.Op {
	return []storage.Op{
		storage.Delete(keys.Signal(workflowID, w.Name, w.ID)),
		storage.Delete(keys.Inbox(workflowID, w.Seq)),
	}
}
