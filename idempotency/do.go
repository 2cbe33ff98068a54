package idempotency

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency/internal/entry"
	"github.com/weft-go/weft/internal/canon"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/saturate"
)

// Do makes the effect happen once for k, and returns its receipt: to this call, to all that come at
// the same time, and to all that come later.
//
// Errors: ErrInvalid, ErrClosed, ErrOtherStore; *ConflictError, *InProgressError,
// *IndeterminateError, *FailedError, *StaleError, *FenceLostError, *ResultUnavailableError. Any other
// is what Run or Reserve returned, and nothing happened; or what ended ctx before anything was run;
// or that of the store, of the codec, or of Order.Compare for a version that is stored, and nothing was run.
//
// If ctx ends, so does the context of Run. What Run has done by then is recorded nevertheless.
func (e *Effect[In, Out]) Do(ctx context.Context, l *Ledger, k Key, in In) (Receipt[Out], error) {
	j, err := e.job(l, k, in)
	if err != nil {
		return Receipt[Out]{}, err
	}
	return receipt[Out](ctx, l, j, l.do(ctx, j))
}

// Lookup returns the receipt of a sealed key, and ErrNotSealed for any other. It writes nothing, and does not wait.
func (e *Effect[In, Out]) Lookup(ctx context.Context, l *Ledger, k Key) (Receipt[Out], error) {
	if err := e.Check(); err != nil {
		return Receipt[Out]{}, err
	}
	if k.Action == "" {
		k.Action = e.Name
	}
	if err := k.Check(); err != nil {
		return Receipt[Out]{}, err
	}
	if err := l.enter(ctx); err != nil {
		return Receipt[Out]{}, err
	}
	defer l.leave()
	j := &job{key: k, hash: k.Hash()}
	found, err := l.get(ctx, k, j.hash)
	if err != nil {
		return Receipt[Out]{}, err
	}
	if found == nil || found.State != entry.Sealed {
		return Receipt[Out]{}, fmt.Errorf("%w: %s", ErrNotSealed, j.hash)
	}
	return receipt[Out](ctx, l, j, outcome{entry: found, decision: DecidedDuplicate})
}

// Do is the Do of an Effect without a name, with Hold: k.Action is required.
func Do[In, Out any](ctx context.Context, l *Ledger, k Key, in In, run func(ctx context.Context) (Out, error)) (Receipt[Out], error) {
	if k.Action == "" {
		return Receipt[Out]{}, fmt.Errorf("%w: Key.Action is required without an Effect", ErrInvalid)
	}
	e := Effect[In, Out]{Name: "inline", OnAbandoned: Hold}
	if run != nil {
		e.Run = func(ctx context.Context, _ In) (Out, error) { return run(ctx) }
	}
	return e.Do(ctx, l, k, in)
}

// receipt returns what became of a call, with the result decoded from the record.
func receipt[Out any](ctx context.Context, l *Ledger, j *job, o outcome) (Receipt[Out], error) {
	r := Receipt[Out]{Decision: o.decision}
	e := o.entry
	if e == nil {
		r.EffectID = o.effectID
		return r, o.err
	}
	r.EffectID, r.Attempt = e.EffectID, e.Attempt
	r.FirstSeen, r.SealedAt = entry.Time(e.FirstSeen), entry.Time(e.SealedAt)
	if e.State != entry.Sealed || o.decision == DecidedConflict { // then the result is of another request
		return r, o.err
	}
	if e.Unavailable != "" {
		return r, orUnavailable(o.err, e.EffectID, e.Unavailable)
	}
	var out Out
	if err := l.codecs.Decode(context.WithoutCancel(ctx), payload.Payload{Codec: e.ResultWith, Data: e.Result}, &out); err != nil {
		return r, orUnavailable(o.err, e.EffectID, err.Error())
	}
	r.Result = out
	return r, o.err
}

func orUnavailable(err error, id, reason string) error {
	if err != nil {
		return err
	}
	return &ResultUnavailableError{EffectID: id, Reason: reason}
}

// A job is one call of Do, without types.
type job struct {
	name string
	key  Key
	hash string

	canonical   []byte                              // of what a duplicate must have equal
	fingerprint string                              // of canonical
	reread      func(stored []byte) ([]byte, error) // what canonical would be of an earlier request, by today's code
	diffValues  bool

	reserve func(ctx context.Context) (Reservation, error) // nil: a ULID
	run     func(ctx context.Context) (any, error)
	verify  func(ctx context.Context) (activity.Answer, error) // nil: there is none
	final   func(out any) string                               // nil: the reserved id
	errors  []error

	policy                                          Abandoned
	fences                                          bool
	order                                           *ordering // nil: none
	timeout, verifyTimeout, settle, wait, retention time.Duration
}

// job checks a call and returns it without types. Functions of the definition that are called
// here are user code: their panics are errors.
func (e *Effect[In, Out]) job(l *Ledger, k Key, in In) (j *job, err error) {
	if err := e.Check(); err != nil {
		return nil, err
	}
	if e.retention() <= l.config.Lease {
		return nil, &ConfigError{"Effect.Retention", fmt.Sprintf("is %v, it must be longer than the ledger's Lease of %v", e.retention(), l.config.Lease)}
	}
	if k.Action == "" {
		k.Action = e.Name
	}
	if err := k.Check(); err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil {
			j, err = nil, fmt.Errorf("%w: the input of %s: %w", ErrInvalid, e.Name, panicked(p))
		}
	}()
	j = &job{
		name: e.Name, key: k, hash: k.Hash(), errors: e.Errors, diffValues: e.DiffValues,
		policy: e.OnAbandoned, fences: e.VerifyFences,
		timeout: orDefault(e.Timeout, DefaultTimeout), verifyTimeout: orDefault(e.VerifyTimeout, activity.DefaultVerifyTimeout),
		wait: orDefault(e.Wait, DefaultWait), retention: e.retention(),
	}
	j.settle = orDefault(e.Settle, j.timeout)
	if j.policy == VerifyOrHold && e.Verify == nil {
		j.policy = Hold
	}
	if err := identify(j, e.compared(in)); err != nil {
		return nil, err
	}
	if e.Order != nil {
		j.order = &ordering{e.Order.Source(in), e.Order.Version(in), guarded(e.Order.Compare), e.Order.Ties}
		if err := j.order.check(); err != nil {
			return nil, err
		}
	}
	j.run = func(ctx context.Context) (any, error) { return e.Run(ctx, in) }
	if e.Reserve != nil {
		j.reserve = func(ctx context.Context) (Reservation, error) { return e.Reserve(ctx, in) }
	}
	if e.Verify != nil {
		j.verify = func(ctx context.Context) (activity.Answer, error) { return e.Verify(ctx, in) }
	}
	if e.EffectID != nil {
		j.final = func(out any) string {
			o, _ := out.(Out)
			return e.EffectID(in, o)
		}
	}
	return j, nil
}

// compared returns what a duplicate must have equal.
func (e *Effect[In, Out]) compared(in In) any {
	if e.Fingerprint != nil {
		return e.Fingerprint(in)
	}
	return in
}

// identify sets what identifies the request of j.
func identify(j *job, request any) (err error) {
	if j.canonical, err = canon.Value(request); err != nil {
		return fmt.Errorf("%w: the request cannot be compared: %w", ErrInvalid, err)
	}
	if len(j.canonical) > weft.MaxPayload {
		return fmt.Errorf("%w: the request has %d bytes, at most %d are allowed", ErrInvalid, len(j.canonical), weft.MaxPayload)
	}
	j.fingerprint = canon.Fingerprint(j.canonical)
	t := reflect.TypeOf(request)
	j.reread = func(stored []byte) ([]byte, error) {
		if t == nil {
			return stored, nil
		}
		v := reflect.New(t)
		d := json.NewDecoder(bytes.NewReader(stored))
		d.UseNumber() // an any keeps all digits
		if err := d.Decode(v.Interface()); err != nil {
			return nil, err
		}
		return canon.Value(v.Elem().Interface())
	}
	return nil
}

// same says whether e was made for the request of j. A field that was added to the type of the request since then makes no
// other request, so the stored one is also compared as today's code would have it, if that loses nothing of it.
func (l *Ledger) same(ctx context.Context, j *job, e *entry.Entry) bool {
	if e.Fingerprint == j.fingerprint {
		return true
	}
	stored := l.request(ctx, e)
	if stored == nil {
		return false
	}
	if !canon.Current(e.Fingerprint) && bytes.Equal(stored, j.canonical) {
		return true
	}
	again, err := rereading(j, stored)
	return err == nil && bytes.Equal(again, j.canonical) && canon.Adds(stored, again)
}

func rereading(j *job, stored []byte) (again []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	return j.reread(stored)
}

// request returns the canonical request of e, or nil.
func (l *Ledger) request(ctx context.Context, e *entry.Entry) []byte {
	if e.RequestWith == "" {
		return e.Request
	}
	var raw json.RawMessage
	if err := l.codecs.Decode(context.WithoutCancel(ctx), payload.Payload{Codec: e.RequestWith, Data: e.Request}, &raw); err != nil {
		return nil
	}
	stored, err := canon.JSON(raw)
	if err != nil {
		return nil
	}
	return stored
}

// setRequest sets the request of e to that of j.
func (l *Ledger) setRequest(ctx context.Context, j *job, e *entry.Entry) error {
	e.Fingerprint, e.Request, e.RequestWith = j.fingerprint, nil, ""
	if len(j.canonical) > maxRequest {
		return nil
	}
	e.Request = j.canonical
	if l.config.Codec.Name() == weft.JSON.Name() {
		return nil
	}
	p, err := l.encode(ctx, json.RawMessage(j.canonical))
	if errors.Is(err, payload.ErrTooLarge) {
		return fmt.Errorf("%w: the request: %w", ErrInvalid, err)
	} else if err != nil { // the codec fails, whatever the request is
		return fmt.Errorf("idempotency: the codec does not encode the request: %w", err)
	}
	e.Request, e.RequestWith = p.Data, p.Codec
	return nil
}

// encode encodes v. A panic of the codec is an error.
func (l *Ledger) encode(ctx context.Context, v any) (p payload.Payload, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked(r)
		}
	}()
	return l.codecs.Encode(context.WithoutCancel(ctx), v)
}

// result encodes what Run returned. It happened, so what cannot be stored is no error.
func (l *Ledger) result(ctx context.Context, out any) entry.Result {
	p, err := l.encode(ctx, out)
	switch {
	case err != nil:
		return entry.Result{Unavailable: payload.Recordable(err.Error())}
	case len(p.Data) > l.config.MaxResult:
		return entry.Result{Unavailable: fmt.Sprintf("the result has %d bytes, at most %d are stored", len(p.Data), l.config.MaxResult)}
	}
	return entry.Result{Data: p.Data, Codec: p.Codec}
}

// abated returns how long after a holder's death its effect may still happen.
func (j *job) abated() time.Duration {
	if j.policy != VerifyOrHold || j.fences {
		return 0
	}
	return saturate.Add(j.timeout, j.settle)
}
