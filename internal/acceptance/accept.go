package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/weft-go/weft/internal/digest"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

const version = 1

// An Incoming is a signal that is to be accepted, encoded.
type Incoming struct {
	WorkflowID, Name, ID string
	Generation           string // of the workflow that it is for; "": the one that is there
	Generated            bool   // the ID was made for this call, which alone has it
	Codec                string // "" is JSON
	Data                 []byte
	Digest               digest.Digest
	Memory               time.Duration // minimum time for which its acceptance is remembered

	// Resume is set if the signal resumes a hook.
	Resume *Resume
}

// A Resume is what the acceptance of a signal to a hook depends on.
type Resume struct {
	TokenHash string
	Address   []byte // of the open hook that has the token, as it is stored
}

// answers are the keys under which the answer to in's ID may be. The answer to a resume with an ID
// belongs to the token: it is also there when the run is not any more.
func (in *Incoming) answers() (ks [][]byte) {
	if in.Resume != nil && !in.Generated {
		ks = append(ks, keys.Resumed(in.Resume.TokenHash, in.ID))
	}
	if in.WorkflowID != "" {
		ks = append(ks, keys.Accepted(in.WorkflowID, in.Name, in.ID))
	}
	return ks
}

// Standing returns the condition that the answer to in's ID is the one that is there now, or is there.
func Standing(ctx context.Context, s storage.Storage, in *Incoming) (storage.Condition, error) {
	key, raw, err := readAnswer(ctx, s, in)
	if raw == nil {
		return storage.Present(key), err
	}
	return storage.Equal(key, raw), err
}

// readAnswer reads the answer to in's ID; nil is none.
func readAnswer(ctx context.Context, s storage.Storage, in *Incoming) (key, raw []byte, err error) {
	for _, key = range in.answers() {
		if raw, err = s.Get(ctx, key); err == nil {
			return key, raw, nil
		}
		if !errors.Is(err, storage.ErrNotFound) {
			return key, nil, err
		}
	}
	return key, nil, nil
}

// SamePayload says that in and other, which have one ID, also have one payload.
func (in *Incoming) SamePayload(other *Incoming) bool { return in.Digest.Same(other.Digest) }

// Conflict is the error of an ID that was accepted with another payload.
func (in *Incoming) Conflict() error {
	return &signal.ConflictError{WorkflowID: in.WorkflowID, SignalName: in.Name, SignalID: in.ID}
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
	Canonical        []byte `cbor:"9,keyasint,omitempty"` // with Digest, it identifies the payload

	raw     []byte         // the record, and
	unknown record.Unknown // what of it a later release wrote
}

func (a *accepted) identity() digest.Digest {
	return digest.Digest{Plain: a.Digest, Canonical: a.Canonical}
}

func (a *accepted) response() signal.Accepted {
	return signal.Accepted{
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
	Name  string `cbor:"1,keyasint"`
	ID    string `cbor:"2,keyasint"`
	At    int64  `cbor:"3,keyasint,omitempty"` // when it was accepted
	Bytes int    `cbor:"4,keyasint,omitempty"` // of the payload
}

func (p *place) waiting(seq uint64) Waiting {
	return Waiting{Seq: seq, Name: p.Name, ID: p.ID, AcceptedAt: time.UnixMicro(p.At).UTC(), Bytes: p.Bytes}
}

// counter is how many signals a workflow has accepted: sigseq:{id}.
type counter struct {
	N uint64 `cbor:"1,keyasint"`
}

// Earlier returns the answer that was given to in's ID before, and false if there was
// none. The answer is a repetition, unless the call alone has the ID. Another payload is a *ConflictError. A payload without an accepted response is
// an *IndeterminateError: only part of a batch exists, and whether the sender got an
// answer cannot be determined.
func Earlier(ctx context.Context, s storage.Storage, in *Incoming) (signal.Accepted, bool, error) {
	a, err := readAccepted(ctx, s, in)
	if a == nil && err == nil && in.WorkflowID == "" {
		return signal.Accepted{}, false, nil
	}
	if a == nil && err == nil {
		_, err = s.Get(ctx, keys.Signal(in.WorkflowID, in.Name, in.ID))
		switch {
		case errors.Is(err, storage.ErrNotFound):
			return signal.Accepted{}, false, nil
		case err == nil: // unless it was accepted since the first look
			a, err = readAccepted(ctx, s, in)
		}
	}
	switch {
	case err != nil:
		return signal.Accepted{}, false, err
	case a == nil:
		return signal.Accepted{}, false, &signal.IndeterminateError{WorkflowID: in.WorkflowID, SignalName: in.Name, SignalID: in.ID, CorrelationID: ""}
	case !a.identity().Same(in.Digest):
		return signal.Accepted{}, false, &signal.ConflictError{WorkflowID: a.WorkflowID, SignalName: a.SignalName, SignalID: a.SignalID}
	}
	answer := a.response()
	answer.Repeated = !in.Generated
	return answer, true, nil
}

// readAccepted reads the accepted response of in's ID; nil is none.
func readAccepted(ctx context.Context, s storage.Storage, in *Incoming) (*accepted, error) {
	key, raw, err := readAnswer(ctx, s, in)
	if raw == nil {
		return nil, err
	}
	a := accepted{raw: raw}
	a.unknown, err = record.Open(key, raw, version, &a)
	return &a, err
}

// Counter reads the stored acceptance counter of a workflow; nil is none.
func Counter(ctx context.Context, s storage.Storage, workflowID string) ([]byte, error) {
	raw, err := s.Get(ctx, keys.SignalCounter(workflowID))
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	return raw, err
}

// CounterAt is the counter of a workflow that has accepted n signals, as it is stored
// if this version wrote it.
func CounterAt(workflowID string, n uint64) ([]byte, error) {
	return record.Seal(keys.SignalCounter(workflowID), version, &counter{n}, nil)
}

// Counted is how many signals a workflow has accepted, of its counter as it is stored;
// nil is none.
func Counted(workflowID string, counted []byte) (uint64, error) {
	n, _, err := count(keys.SignalCounter(workflowID), counted)
	return n.N, err
}

func count(key, counted []byte) (n counter, keep record.Unknown, err error) {
	if counted != nil {
		keep, err = record.Open(key, counted, version, &n)
	}
	return n, keep, err
}

// An Acceptance is a decision to accept signals of one workflow, in this order.
type Acceptance struct {
	Batch   storage.Batch
	Arrived []Arrival
	Counter []byte // as it is stored once the batch is
}

// An Arrival is one signal of an acceptance: its place in the inbox with its payload,
// and the answer to its sender.
type Arrival struct {
	Waiting
	Answer signal.Accepted
}

// Waiting are the places of what has arrived.
func (d *Acceptance) Waiting() []Waiting {
	ws := make([]Waiting, len(d.Arrived))
	for i, a := range d.Arrived {
		ws[i] = a.Waiting
	}
	return ws
}

// Accept decides the acceptance of signals of one workflow. For each of them it writes
// the payload, its place in the inbox, the accepted response and the entry by which
// that expires, if there is no payload and no response. For a resume of a hook it also writes the
// answer for the token, if the hook is still open. It also writes the counter, if
// that is unchanged since it was read. No two of them may have one ID. The caller adds
// its condition on the workflow.
func Accept(ins []*Incoming, generation string, counted []byte, now time.Time) (*Acceptance, error) {
	return admit(ins, false, generation, counted, now)
}

// AcceptConsumed decides the acceptance of a signal that is consumed in the same
// commit: its payload and its place in the inbox are not written. It is still a
// condition that no payload of its ID exists. The caller ensures that no other signal
// is before it.
func AcceptConsumed(in *Incoming, generation string, counted []byte, now time.Time) (*Acceptance, error) {
	return admit([]*Incoming{in}, true, generation, counted, now)
}

func admit(ins []*Incoming, consumed bool, generation string, counted []byte, now time.Time) (*Acceptance, error) {
	id := ins[0].WorkflowID
	key := keys.SignalCounter(id)
	n, keep, err := count(key, counted)
	if err != nil {
		return nil, err
	}
	same := storage.Absent(key)
	if counted != nil {
		same = storage.Equal(key, counted)
	}
	d := &Acceptance{Batch: storage.Batch{
		If:  append(make([]storage.Condition, 0, 2*len(ins)+2), same),
		Ops: make([]storage.Op, 0, 4*len(ins)+2),
	}}
	for _, in := range ins {
		n.N++
		if err := d.add(in, consumed, generation, n.N, now); err != nil {
			return nil, err
		}
	}
	d.Counter, err = record.Seal(key, version, &n, keep)
	d.Batch.Ops = append(d.Batch.Ops, storage.Put(key, d.Counter))
	return d, err
}

func (d *Acceptance) add(in *Incoming, consumed bool, generation string, seq uint64, now time.Time) error {
	payloadKey := keys.Signal(in.WorkflowID, in.Name, in.ID)
	acceptedKey := keys.Accepted(in.WorkflowID, in.Name, in.ID)
	expires := now.Add(in.Memory)
	a := &accepted{
		WorkflowID:       in.WorkflowID,
		SignalName:       in.Name,
		SignalID:         in.ID,
		SignalStorageKey: string(payloadKey),
		AcceptedAt:       now.UnixMicro(),
		ExpiresAt:        expires.UnixMicro(),
		Digest:           in.Digest.Plain,
		Canonical:        in.Digest.Canonical,
		Generation:       generation,
	}
	p := &Payload{generation, in.Codec, in.Data}
	pl := &place{in.Name, in.ID, a.AcceptedAt, len(in.Data)}
	d.Batch.If = append(d.Batch.If, storage.Absent(acceptedKey), storage.Absent(payloadKey))
	records := []sealing{
		{acceptedKey, a},
		{payloadKey, p},
		{keys.Inbox(in.WorkflowID, seq), pl},
	}
	if consumed {
		records = records[:1:1]
		d.Batch.Ops = append(d.Batch.Ops, storage.Delete(payloadKey)) // it stays absent
	}
	if to := in.Resume; to != nil {
		d.requireOpen(to)
		if !in.Generated {
			key := keys.Resumed(to.TokenHash, in.ID)
			d.Batch.If = append(d.Batch.If, storage.Absent(key))
			records = append(records, sealing{key, a})
			d.Batch.Ops = append(d.Batch.Ops, storage.Put(keys.ExpiringResumed(expires, to.TokenHash, in.ID), nil))
		}
	}
	for _, r := range records {
		raw, err := record.Seal(r.key, version, r.v, nil)
		if err != nil {
			return err
		}
		d.Batch.Ops = append(d.Batch.Ops, storage.Put(r.key, raw))
	}
	d.Batch.Ops = append(d.Batch.Ops, storage.Put(keys.ExpiringSignal(expires, in.WorkflowID, in.Name, in.ID), nil))
	w := pl.waiting(seq)
	w.Payload = p
	d.Arrived = append(d.Arrived, Arrival{w, a.response()})
	return nil
}

// sealing is a record to be stored.
type sealing struct {
	key []byte
	v   any
}

// requireOpen adds the condition that a hook is open, unless it is there already. Two signals of one
// acceptance that are for one token must be for one hook.
func (d *Acceptance) requireOpen(to *Resume) {
	open := storage.Equal(keys.HookAddress(to.TokenHash), to.Address)
	if !slices.ContainsFunc(d.Batch.If, func(c storage.Condition) bool { return bytes.Equal(c.Key, open.Key) }) {
		d.Batch.If = append(d.Batch.If, open)
	}
}

// A Waiting is a signal in a workflow's inbox.
type Waiting struct {
	Seq        uint64
	Name, ID   string
	AcceptedAt time.Time
	Bytes      int      // of the payload
	Payload    *Payload // if it is known already
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
		w, err := OpenPlace(e)
		if err != nil {
			return nil, false, err
		}
		page = append(page, w)
	}
	return page, len(entries) < limit, nil
}

// OpenPlace decodes a place in an inbox.
func OpenPlace(e storage.Entry) (Waiting, error) {
	n, err := keys.Number(e.Key)
	if err != nil {
		return Waiting{}, err
	}
	var p place
	if _, err := record.Open(e.Key, e.Value, version, &p); err != nil {
		return Waiting{}, err
	}
	return p.waiting(n), nil
}

// OpenAccepted decodes a stored accepted response.
func OpenAccepted(e storage.Entry) (signal.Accepted, error) {
	var a accepted
	if _, err := record.Open(e.Key, e.Value, version, &a); err != nil {
		return signal.Accepted{}, err
	}
	return a.response(), nil
}

// Place finds a signal in a workflow's inbox; nil is none.
func Place(ctx context.Context, s storage.Storage, workflowID, name, id string) (*Waiting, error) {
	for seq, last := uint64(0), false; !last; {
		page, end, err := Inbox(ctx, s, workflowID, seq, storage.DefaultLimit)
		if err != nil {
			return nil, err
		}
		for _, w := range page {
			if seq = w.Seq + 1; w.Name == name && w.ID == id {
				return &w, nil
			}
		}
		last = end
	}
	return nil, nil
}

// Unaccounted yields the payloads of a workflow that have no accepted response:
// names and sizes. r is keys.Signals of the workflow, or a part of it.
func Unaccounted(ctx context.Context, s storage.Storage, workflowID string, r storage.Range) iter.Seq2[Waiting, error] {
	return func(yield func(Waiting, error) bool) {
		r.Limit = keys.PayloadPage
		for entry, err := range storage.All(ctx, s, r) {
			w, found := Waiting{}, false
			if err == nil {
				w, found, err = unaccounted(ctx, s, workflowID, entry)
			}
			if (found || err != nil) && !yield(w, err) || err != nil {
				return
			}
		}
	}
}

func unaccounted(ctx context.Context, s storage.Storage, workflowID string, entry storage.Entry) (w Waiting, found bool, err error) {
	if w.Name, w.ID, err = keys.SignalNames(entry.Key); err != nil {
		return w, false, err
	}
	_, err = s.Get(ctx, keys.Accepted(workflowID, w.Name, w.ID))
	if !errors.Is(err, storage.ErrNotFound) {
		return w, false, err
	}
	var p Payload
	_, err = record.Open(entry.Key, entry.Value, version, &p)
	w.Bytes = len(p.Data)
	return w, true, err
}

// Read returns the payload of a waiting signal.
func Read(ctx context.Context, s storage.Storage, workflowID string, w Waiting) (*Payload, error) {
	if w.Payload != nil {
		return w.Payload, nil
	}
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

// Consume returns the changes to the inbox that belong to the checkpoint of a receipt,
// and the condition that the signal is there: an operator may have cleared it.
func Consume(workflowID string, w Waiting) (storage.Condition, []storage.Op) {
	place := keys.Inbox(workflowID, w.Seq)
	return storage.Present(place), []storage.Op{storage.Delete(keys.Signal(workflowID, w.Name, w.ID)), storage.Delete(place)}
}
