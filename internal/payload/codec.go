package payload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/digest"
	"github.com/weft-go/weft/internal/journal"
)

// Codecs has the codec with which an engine encodes, and all with which it decodes.
type Codecs struct {
	Own    weft.Codec
	ByName map[string]weft.Codec
}

// A Payload is an encoded value. An empty codec means JSON.
type Payload struct {
	Codec string
	Data  []byte
}

// ErrTooLarge means that an encoded value is larger than weft.MaxPayload.
var ErrTooLarge = errors.New("too large")

// Encode encodes v. An error means that v is not encodable or too large.
func (c *Codecs) Encode(ctx context.Context, v any) (Payload, error) {
	p, err := c.encodeAny(ctx, v)
	if err != nil {
		return Payload{}, err
	}
	if len(p.Data) > weft.MaxPayload {
		return Payload{}, fmt.Errorf("encode %T: %w: %d bytes, at most %d", v, ErrTooLarge, len(p.Data), weft.MaxPayload)
	}
	return p, nil
}

// encodeAny encodes v without a size limit. It returns a copy of what a user's codec
// returns, which may share memory with v or be reused by the codec.
func (c *Codecs) encodeAny(ctx context.Context, v any) (Payload, error) {
	data, err := c.Own.Encode(ctx, v)
	if err != nil {
		return Payload{}, fmt.Errorf("encode %T: %w", v, err)
	}
	name := c.Own.Name()
	if name == weft.JSON.Name() {
		return Payload{"", data}, nil
	}
	return Payload{name, bytes.Clone(data)}, nil
}

// Identify encodes v and also returns the digest of its plaintext. A panic while v is
// encoded is returned as an error.
func (c *Codecs) Identify(ctx context.Context, v any) (p Payload, id digest.Digest, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("encode %T: %w", v, Panicked(r))
		}
	}()
	p, err = c.Encode(ctx, v)
	if err != nil {
		return p, id, err
	}
	plain := p.Data
	if p.Codec != "" {
		if plain, err = json.Marshal(v); err != nil {
			return p, id, fmt.Errorf("identify %T: %w", v, err)
		}
	}
	return p, digest.Of(plain), nil
}

// Digest returns the SHA-256 of v's plaintext. A panic while v is
// encoded is returned as an error.
func Digest(v any) (sum []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("identify %T: %w", v, Panicked(p))
		}
	}()
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("identify %T: %w", v, err)
	}
	h := sha256.Sum256(plain)
	return h[:], nil
}

// Decode decodes p into v. The error is a *weft.DecodeError.
func (c *Codecs) Decode(ctx context.Context, p Payload, v any) error {
	codec, ok := weft.JSON, true
	if p.Codec != "" {
		codec, ok = c.ByName[p.Codec]
		p.Data = bytes.Clone(p.Data) // v may keep it, and p may be decoded again
	}
	if !ok {
		return &weft.DecodeError{Type: TypeOf(v), Codec: p.Codec, Err: errors.New("there is no such codec in Config.Codecs")}
	}
	if err := decodeBy(ctx, codec, p.Data, v); err != nil {
		return &weft.DecodeError{Type: TypeOf(v), Codec: codec.Name(), Err: err}
	}
	return nil
}

// decodeBy calls a codec. A codec or an UnmarshalJSON is user code: a panic in it is
// returned as an error.
func decodeBy(ctx context.Context, codec weft.Codec, data []byte, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = Panicked(p)
		}
	}()
	return codec.Decode(ctx, data, v)
}

// TypeOf returns the name of the type that v points to.
func TypeOf(v any) string {
	t := reflect.TypeOf(v)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return fmt.Sprint(t)
}

// A Failure is an error in the form in which it is stored.
type Failure struct{ Message, Stack, Sentinel string }

// FailureOf converts err to a failure. If it matches one of the user's sentinels, the text of
// that is kept. The methods of an error are user code and may panic.
func FailureOf(err error, stack string, sentinels []error) (f Failure) {
	defer func() {
		if p := recover(); p != nil {
			f = Failure{Message: Recordable(fmt.Sprintf("%T, which panics when asked for its text: %v", err, p)), Stack: Recordable(stack)}
		}
	}()
	var p *panicked
	if stack == "" && errors.As(err, &p) {
		stack = p.stack
	}
	f = Failure{Message: Recordable(err.Error()), Stack: Recordable(stack)}
	if f.Message == "" {
		f.Message = fmt.Sprintf("%T without a text", err) // an empty message would mean no failure
	}
	if s := MatchSentinel(err, sentinels); s != nil {
		f.Sentinel = Recordable(s.Error())
	}
	return f
}

// maxText is the maximum number of bytes kept of an error's text or of a stack.
const maxText = 64 << 10

// Recordable returns s as valid UTF-8, truncated to maxText.
func Recordable(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Onto stores f in the output of a workflow.
func (f Failure) Onto(out *journal.Output) {
	out.Error, out.Stack, out.Sentinel = f.Message, f.Stack, f.Sentinel
}

// Panicked returns the error of a panic with the value p.
func Panicked(p any) error {
	if err, ok := p.(error); ok {
		return fmt.Errorf("panic: %w", err)
	}
	return fmt.Errorf("panic: %v", p)
}

// MatchSentinel returns the first of sentinels that err matches, or nil.
func MatchSentinel(err error, sentinels []error) error {
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return s
		}
	}
	return nil
}

// SentinelOf returns the first sentinel whose recorded text is text, or nil. An empty text means
// that the error matched none.
func SentinelOf(text string, lists ...[]error) error {
	if text == "" {
		return nil
	}
	for _, list := range lists {
		for _, s := range list {
			if Recordable(s.Error()) == text {
				return s
			}
		}
	}
	return nil
}

// IsNil reports whether v is nil or an interface that holds a nil pointer.
func IsNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}

// A panicked is the error that those who wait for a branch get if it panicked.
type panicked struct {
	error
	stack string
}

// WithStack returns err with the stack of the panic that caused it.
func WithStack(err error, stack string) error { return &panicked{err, stack} }

func (p *panicked) Unwrap() error { return p.error }
