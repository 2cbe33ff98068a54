package acceptance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft/internal/digest"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// An Update is an update that a workflow has not accepted or refused yet: upd:{id}:{update}.
type Update struct {
	Generation string `cbor:"1,keyasint"`
	Name       string `cbor:"2,keyasint"`
	Codec      string `cbor:"3,keyasint,omitempty"` // of Data; "" is JSON
	Data       []byte `cbor:"4,keyasint,omitempty"`
	Digest     []byte `cbor:"5,keyasint"`
	Canonical  []byte `cbor:"6,keyasint,omitempty"` // with Digest, it identifies the input
	Seq        uint64 `cbor:"7,keyasint"`           // its place in the order of acceptance of the workflow's signals; 0: it was accepted before, see Pending
	At         int64  `cbor:"8,keyasint,omitempty"` // when it was admitted, in microseconds since 1970

	ID string `cbor:"-"`
}

// Identity identifies the input.
func (u *Update) Identity() digest.Digest {
	return digest.Digest{Plain: u.Digest, Canonical: u.Canonical}
}

// Same reports whether u, and an update with this name and input, are the same.
func (u *Update) Same(name string, input digest.Digest) bool {
	return u.Name == name && u.Identity().Same(input)
}

// States of an answer.
const (
	Accepted  = "accepted" // there is no answer yet
	Rejected  = "rejected"
	Completed = "completed"
	Failed    = "failed"
)

// An Answer is the acceptance of an update, its answer, or its refusal: upr:{id}:{update}. Times are in
// microseconds since 1970.
type Answer struct {
	Generation string `cbor:"1,keyasint"`
	Name       string `cbor:"2,keyasint"`
	State      string `cbor:"3,keyasint"`
	Digest     []byte `cbor:"4,keyasint"`
	Canonical  []byte `cbor:"5,keyasint,omitempty"` // with Digest, it identifies the input
	At         int64  `cbor:"6,keyasint,omitempty"` // when it was accepted or refused
	ExpiresAt  int64  `cbor:"7,keyasint,omitempty"` // of an answer or a refusal
	Codec      string `cbor:"8,keyasint,omitempty"` // of Data, the result
	Data       []byte `cbor:"9,keyasint,omitempty"`
	Error      string `cbor:"10,keyasint,omitempty"`
	Stack      string `cbor:"11,keyasint,omitempty"`
	Sentinel   string `cbor:"12,keyasint,omitempty"`
}

// Same reports whether a is the answer to an update with this name and input.
func (a *Answer) Same(name string, input digest.Digest) bool {
	return a.Name == name && digest.Digest{Plain: a.Digest, Canonical: a.Canonical}.Same(input)
}

// Put returns the operations that store a, and the entry by which it expires if it is an answer or a
// refusal. It is then remembered for a time.
func (a *Answer) Put(id, update string, now time.Time, memory time.Duration) ([]storage.Op, error) {
	var ops []storage.Op
	if a.State != Accepted {
		expires := now.Add(memory)
		a.ExpiresAt = expires.UnixMicro()
		ops = append(ops, storage.Put(keys.ExpiringAnswer(expires, id, update), nil))
	}
	key := keys.Answer(id, update)
	raw, err := record.Seal(key, version, a, nil)
	return append(ops, storage.Put(key, raw)), err
}

// Taken returns the conditions and the deletion that belong to the acceptance or the refusal of an
// update. stored reports whether it was admitted before.
func Taken(id, update string, stored bool) (ifs []storage.Condition, ops []storage.Op) {
	key := keys.Update(id, update)
	ifs = []storage.Condition{storage.Absent(keys.Answer(id, update))}
	ops = []storage.Op{storage.Delete(key)} // or it stays absent
	if !stored {
		return append(ifs, storage.Absent(key)), ops
	}
	return append(ifs, storage.Present(key)), ops
}

// Admit returns the batch that stores u as the next of a workflow with the counter counted, if there is
// neither such an update nor an answer to it. The caller adds its condition on the workflow.
func Admit(id string, u *Update, counted []byte) (b storage.Batch, _ error) {
	key := keys.SignalCounter(id)
	n, keep, err := count(key, counted)
	if err != nil {
		return b, err
	}
	n.N++
	u.Seq = n.N
	at := keys.Update(id, u.ID)
	raw, err := record.Seal(at, version, u, nil)
	if err != nil {
		return b, err
	}
	counter, err := record.Seal(key, version, &n, keep)
	if err != nil {
		return b, err
	}
	same := storage.Absent(key)
	if counted != nil {
		same = storage.Equal(key, counted)
	}
	answer := keys.Answer(id, u.ID)
	b.If = []storage.Condition{same, storage.Absent(at), storage.Absent(answer)}
	b.Ops = []storage.Op{storage.Put(at, raw), storage.Put(key, counter), storage.Delete(answer)} // it stays absent
	return b, nil
}

// ReadUpdate reads an update of a generation of a workflow that is not accepted or refused yet. It
// returns nil if there is none.
func ReadUpdate(ctx context.Context, s storage.Storage, id, generation, update string) (*Update, error) {
	u := &Update{ID: update}
	found, err := readInto(ctx, s, keys.Update(id, update), u)
	if !found || err != nil || u.Generation != generation {
		return nil, err
	}
	return u, nil
}

// ReadAnswer reads the acceptance or the answer of an update of a generation of a workflow. It returns
// nil if there is none.
func ReadAnswer(ctx context.Context, s storage.Storage, id, generation, update string) (*Answer, error) {
	var a Answer
	found, err := readInto(ctx, s, keys.Answer(id, update), &a)
	if !found || err != nil || a.Generation != generation {
		return nil, err
	}
	return &a, nil
}

func readInto(ctx context.Context, s storage.Storage, key []byte, v any) (found bool, _ error) {
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		_, err = record.Open(key, raw, version, v)
	}
	return err == nil, err
}

// OpenUpdate decodes a stored update.
func OpenUpdate(e storage.Entry) (*Update, error) {
	id, err := keys.Last(e.Key)
	u := &Update{ID: id}
	if err == nil {
		_, err = record.Open(e.Key, e.Value, version, u)
	}
	return u, err
}

// OpenAnswer decodes a stored acceptance or answer.
func OpenAnswer(e storage.Entry) (*Answer, error) {
	a := new(Answer)
	_, err := record.Open(e.Key, e.Value, version, a)
	return a, err
}

// Updates reads the updates of a generation of a workflow that are not accepted or refused yet, in the
// order in which they were admitted, without their inputs.
func Updates(ctx context.Context, s storage.Storage, id, generation string) (us []*Update, _ error) {
	r := keys.UpdatesOf(id)
	r.Limit = keys.PayloadPage
	for e, err := range storage.All(ctx, s, r) {
		if err != nil {
			return nil, err
		}
		u, err := OpenUpdate(e)
		if err != nil {
			return nil, err
		}
		if u.Data = nil; u.Generation == generation {
			us = append(us, u)
		}
	}
	slices.SortFunc(us, func(a, b *Update) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.At, b.At)) })
	return us, nil
}

// ForgetAnswer decides what to do with an answer that has expired, by the entry that says so. It is
// deleted if it is unchanged since it was read. If the time of the entry cannot be right (late), it is
// kept for another memory.
func ForgetAnswer(ctx context.Context, s storage.Storage, entry []byte, now time.Time, late bool, memory time.Duration) (storage.Batch, error) {
	b := storage.Batch{Ops: []storage.Op{storage.Delete(entry)}}
	_, names, err := keys.Expiring(entry)
	if err == nil && len(names) != 2 {
		err = fmt.Errorf("%w: key %q", storage.ErrCorrupt, entry)
	}
	if err != nil {
		return b, err
	}
	key := keys.Answer(names[0], names[1])
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return b, nil // purged
	}
	if err != nil {
		return b, err
	}
	a, err := OpenAnswer(storage.Entry{Key: key, Value: raw})
	if err != nil {
		return b, err
	}
	if a.ExpiresAt == 0 || a.ExpiresAt > now.UnixMicro() {
		return b, nil // of a later update with this ID
	}
	b.If = append(b.If, storage.Equal(key, raw))
	if late {
		b.Ops = append(b.Ops, storage.Put(keys.ExpiringAnswer(now.Add(memory), names[0], names[1]), nil))
	} else {
		b.Ops = append(b.Ops, storage.Delete(key))
	}
	return b, nil
}

// RemembersAnswers reports whether an answer to an update of a workflow that has ended has not expired
// yet. An update that it had accepted when it was terminated counts as answered at its end, and is
// remembered for a time.
func RemembersAnswers(ctx context.Context, s storage.Storage, id string, ended, now time.Time, memory time.Duration) (bool, error) {
	r := keys.AnswersOf(id)
	r.Limit = keys.PayloadPage
	for e, err := range storage.All(ctx, s, r) {
		if err != nil {
			return false, err
		}
		a, err := OpenAnswer(e)
		if err != nil {
			return false, err
		}
		expires := time.UnixMicro(a.ExpiresAt)
		if a.State == Accepted {
			expires = ended.Add(memory)
		}
		if expires.After(now) {
			return true, nil
		}
	}
	return false, nil
}
