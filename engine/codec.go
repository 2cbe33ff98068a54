package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/weft-go/weft/checkpoint"
)

// codecs has the codec with which an engine encodes, and all with which it decodes.
type codecs struct {
	own    Codec
	byName map[string]Codec
}

// A payload is an encoded value. An empty codec means JSON.
type payload struct {
	codec string
	data  []byte
}

var errTooLarge = errors.New("too large")

// encode encodes v. An error means that v is not encodable or too large.
func (c *codecs) encode(ctx context.Context, v any) (payload, error) {
	p, err := c.encodeAny(ctx, v)
	if err != nil {
		return payload{}, err
	}
	if len(p.data) > MaxPayload {
		return payload{}, fmt.Errorf("encode %T: %w: %d bytes, at most %d", v, errTooLarge, len(p.data), MaxPayload)
	}
	return p, nil
}

// encodeAny encodes v without a size limit. It returns a copy of what a user's codec
// returns, which may share memory with v or be reused by the codec.
func (c *codecs) encodeAny(ctx context.Context, v any) (payload, error) {
	data, err := c.own.Encode(ctx, v)
	if err != nil {
		return payload{}, fmt.Errorf("encode %T: %w", v, err)
	}
	name := c.own.Name()
	if name == JSON.Name() {
		return payload{"", data}, nil
	}
	return payload{name, bytes.Clone(data)}, nil
}

// identify encodes v and also returns a digest of its plaintext. A panic while v is
// encoded is returned as an error.
func (c *codecs) identify(ctx context.Context, v any) (p payload, digest []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("encode %T: %w", v, panicError(r))
		}
	}()
	p, err = c.encode(ctx, v)
	if err != nil {
		return p, nil, err
	}
	plain := p.data
	if p.codec != "" {
		if plain, err = json.Marshal(v); err != nil {
			return p, nil, fmt.Errorf("identify %T: %w", v, err)
		}
	}
	sum := sha256.Sum256(plain)
	return p, sum[:], nil
}

// digest returns the digest of v's plaintext, as identify does. A panic while v is
// encoded is returned as an error.
func digest(v any) (sum []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("identify %T: %w", v, panicError(p))
		}
	}()
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("identify %T: %w", v, err)
	}
	h := sha256.Sum256(plain)
	return h[:], nil
}

func (c *codecs) decode(ctx context.Context, p payload, v any) error {
	codec, ok := JSON, true
	if p.codec != "" {
		codec, ok = c.byName[p.codec]
		p.data = bytes.Clone(p.data) // v may keep it, and p may be decoded again
	}
	if !ok {
		return &DecodeError{Type: typeOf(v), Codec: p.codec, Err: errors.New("there is no such codec in Config.Codecs")}
	}
	if err := decodeBy(ctx, codec, p.data, v); err != nil {
		return &DecodeError{Type: typeOf(v), Codec: codec.Name(), Err: err}
	}
	return nil
}

// decodeBy calls a codec. A codec or an UnmarshalJSON is user code: a panic in it is
// returned as an error.
func decodeBy(ctx context.Context, codec Codec, data []byte, v any) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError(p)
		}
	}()
	return codec.Decode(ctx, data, v)
}

// typeOf returns the name of the type that v points to.
func typeOf(v any) string {
	t := reflect.TypeOf(v)
	if t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return fmt.Sprint(t)
}

// A failure is an error in the form in which it is stored.
type failure struct{ message, stack, sentinel string }

// fail converts err to a failure. If it matches one of the user's sentinels, the text of
// that is kept. The methods of an error are user code and may panic.
func fail(err error, stack string, sentinels []error) (f failure) {
	defer func() {
		if p := recover(); p != nil {
			f = failure{message: recordable(fmt.Sprintf("%T, which panics when asked for its text: %v", err, p)), stack: recordable(stack)}
		}
	}()
	var p *panicked
	if stack == "" && errors.As(err, &p) {
		stack = p.stack
	}
	f = failure{message: recordable(err.Error()), stack: recordable(stack)}
	if f.message == "" {
		f.message = fmt.Sprintf("%T without a text", err) // an empty message would mean no failure
	}
	if s := match(err, sentinels); s != nil {
		f.sentinel = recordable(s.Error())
	}
	return f
}

// maxText is the maximum number of bytes kept of an error's text or of a stack.
const maxText = 64 << 10

// recordable returns s as valid UTF-8, truncated to maxText.
func recordable(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func (f failure) onto(out *checkpoint.Output) {
	out.Error, out.Stack, out.Sentinel = f.message, f.stack, f.sentinel
}

func panicError(p any) error {
	if err, ok := p.(error); ok {
		return fmt.Errorf("panic: %w", err)
	}
	return fmt.Errorf("panic: %v", p)
}

// match returns the first of sentinels that err matches, or nil.
func match(err error, sentinels []error) error {
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return s
		}
	}
	return nil
}

// named returns the first sentinel whose recorded text is text, or nil.
func named(text string, lists ...[]error) error {
	for _, list := range lists {
		for _, s := range list {
			if recordable(s.Error()) == text {
				return s
			}
		}
	}
	return nil
}

// isNil reports whether v is nil or an interface that holds a nil pointer.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}

// A panicked is the error that those who wait for a branch get if it panicked.
type panicked struct {
	error
	stack string
}

func (p *panicked) Unwrap() error { return p.error }
