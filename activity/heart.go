package activity

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// Heartbeat reports how far the attempt has come. The next attempt and the verifier
// read this with [Progress]. It also says whether to continue: its error is the cause
// when the attempt should stop, which is ErrTimeout, ErrLeaseLost, ErrStopped,
// engine.ErrCancelled, or that of the caller's own context. It is another error if
// progress cannot be encoded, or has more than 64 KiB when encoded; such progress is
// not reported.
//
// It does not wait for the store and may be called as often as you like. The last value
// is written every five seconds, and when the attempt ends without a result. Values of
// the last five seconds before a process died are lost. A store that cannot be reached
// is no reason to stop.
//
// With a context that is not an attempt's, and in a verifier, nothing is reported.
func Heartbeat[T any](ctx context.Context, progress T) error {
	var err error
	if h := heartFrom(ctx); h != nil {
		err = h.Beat(progress)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Progress returns what an earlier attempt reported last; in a verifier, the attempt in
// question or one before it. It reads the store once, and waits for it. It returns
// false if nothing was reported, if the value is not a T, or if ctx ends before the
// store answers. Progress is a hint where to continue, and no proof of what happened.
func Progress[T any](ctx context.Context) (progress T, ok bool) {
	h := heartFrom(ctx)
	if h == nil || !h.Last(&progress) {
		return *new(T), false
	}
	return progress, true
}

func heartFrom(ctx context.Context) Heart {
	h, _ := ctx.Value(heartKey{}).(Heart)
	return h
}

// Internal to Weft: what package engine and tests need.

// A Heart is the engine's side of Heartbeat and Progress.
type Heart interface {
	Beat(progress any) error // encodes it before it returns
	Last(progress any) bool  // decodes into a pointer
}

// A Beat is the progress that an attempt reported last: beat:{workflow}:{operation}. It
// is not part of what is known of an effect. Its time is in microseconds since 1970.
type Beat struct {
	Generation string `cbor:"1,keyasint"`
	Activity   string `cbor:"2,keyasint"`
	Attempt    int    `cbor:"3,keyasint"`
	At         int64  `cbor:"4,keyasint"` // rises with every change
	Codec      string `cbor:"5,keyasint,omitempty"`
	Progress   []byte `cbor:"6,keyasint"`

	key, raw []byte
	unknown  record.Unknown
}

// ReadBeat reads the progress of an operation. If there is none it returns an empty
// one, which can be written. One of an earlier workflow with the same id is returned
// too: it has another Generation.
func ReadBeat(ctx context.Context, s storage.Storage, workflowID, operation string) (Beat, error) {
	b := Beat{key: keys.Beat(workflowID, operation)}
	raw, err := s.Get(ctx, b.key)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return b, nil
	case err != nil:
		return b, err
	}
	if b.unknown, err = record.Open(b.key, raw, Version, &b); err != nil {
		return b, fmt.Errorf("activity: progress of %q, operation %s: %w", workflowID, operation, err)
	}
	b.raw = raw
	return b, nil
}

// Unchanged is the condition that the stored record still is b.
func (b *Beat) Unchanged() storage.Condition {
	if b.raw == nil {
		return storage.Absent(b.key)
	}
	return storage.Equal(b.key, b.raw)
}

// Seal returns b as it is to be stored, and the operation that does so.
func (b Beat) Seal() (Beat, storage.Op, error) {
	raw, err := record.Seal(b.key, Version, &b, b.unknown)
	if err != nil {
		return b, storage.Op{}, err
	}
	b.raw = raw
	return b, storage.Put(b.key, raw), nil
}
