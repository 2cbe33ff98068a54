package payload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weft-go/weft/internal/jsontext"
)

// A Snapshot is the input of an operation as it was when the operation was started. Each
// attempt gets its own copy, and so do the verifier and Compensate. So none of them sees a
// change that another one, or the workflow, makes to its input.
//
// Only an input that can share memory has a snapshot. The snapshot is a copy if slices are
// all that must be copied; otherwise it is the encoded input.
type Snapshot struct {
	Of      reflect.Type
	Copy    func(to, from reflect.Value) // nil: encoded holds it
	Value   reflect.Value
	Encoded Payload
	Err     error // the input cannot be encoded
}

// A Fingerprint is the first bytes of the digest of an input's plaintext. Zero means none.
type Fingerprint [8]byte

// Copied returns a copy of v, which is of s's type.
func (s *Snapshot) Copied(v reflect.Value) reflect.Value {
	c := reflect.New(s.Of).Elem()
	s.Copy(c, v)
	return c
}

// Copied encodes v. The size is not limited, because the result is not stored.
func (c *Codecs) Copied(ctx context.Context, v any) (p Payload, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("encode %T: %w", v, Panicked(r))
		}
	}()
	return c.encodeAny(ctx, v)
}

// sharing caches for structs and arrays whether they can share memory.
var sharing sync.Map // bool, by reflect.Type

var timeType = reflect.TypeFor[time.Time]()

// Shares reports whether a value of type t and its shallow copy can share memory that can be
// modified. Strings cannot be modified, nor can what a time.Time points to.
func Shares(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array, reflect.Struct:
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return true
	default:
		return false
	}
	if known, ok := sharing.Load(t); ok {
		return known.(bool)
	}
	is := false
	switch {
	case t == timeType:
	case t.Kind() == reflect.Array:
		is = t.Len() > 0 && Shares(t.Elem())
	default:
		for i := 0; i < t.NumField() && !is; i++ {
			is = Shares(t.Field(i).Type)
		}
	}
	sharing.Store(t, is)
	return is
}

// copiers caches the results of copier.
var copiers sync.Map // func(to, from reflect.Value), by reflect.Type

// Copier returns a function that copies values of type t so that the copies share no memory.
// It returns nil if more than slices must be copied: for pointers, maps and interfaces, for
// recursive types, and for slices in unexported fields.
func Copier(t reflect.Type) func(to, from reflect.Value) {
	if known, ok := copiers.Load(t); ok {
		return known.(func(to, from reflect.Value))
	}
	c := newCopier(t, nil)
	copiers.Store(t, c)
	return c
}

// newCopier is copier without the cache. within holds the types that t is a part of.
func newCopier(t reflect.Type, within []reflect.Type) func(to, from reflect.Value) {
	switch {
	case !Shares(t):
		return reflect.Value.Set
	case slices.Contains(within, t):
		return nil
	}
	within = append(within, t)
	switch t.Kind() {
	case reflect.Slice:
		each := newCopier(t.Elem(), within)
		if each == nil {
			return nil
		}
		whole := !Shares(t.Elem())
		return func(to, from reflect.Value) {
			switch n := from.Len(); {
			case from.IsNil():
				return
			case n == 0:
				to.Set(reflect.MakeSlice(t, 0, 0))
			default:
				to.Grow(n)
				to.SetLen(n)
			}
			if whole {
				reflect.Copy(to, from)
				return
			}
			for i := range from.Len() {
				each(to.Index(i), from.Index(i))
			}
		}
	case reflect.Array:
		each := newCopier(t.Elem(), within)
		if each == nil {
			return nil
		}
		return func(to, from reflect.Value) {
			for i := range t.Len() {
				each(to.Index(i), from.Index(i))
			}
		}
	case reflect.Struct:
		fields := map[int]func(to, from reflect.Value){}
		for i := range t.NumField() {
			if f := t.Field(i); Shares(f.Type) {
				if fields[i] = newCopier(f.Type, within); fields[i] == nil || !f.IsExported() {
					return nil
				}
			}
		}
		return func(to, from reflect.Value) {
			to.Set(from)
			for i, field := range fields {
				part := to.Field(i)
				part.SetZero()
				field(part, from.Field(i))
			}
		}
	}
	return nil
}

// DigestOf returns the digest of v's plaintext, which is its JSON. A panic in encoding v is
// returned as an error.
func DigestOf(v any) (sum [sha256.Size]byte, err error) {
	var room [64]byte
	if plain := scalar(room[:0], v); plain != nil {
		return sha256.Sum256(plain), nil
	}
	j := encoders.Get().(*encoder)
	defer func() {
		if p := recover(); p != nil { // j is not reused
			err = fmt.Errorf("identify %T: %w", v, Panicked(p))
		}
	}()
	j.to.Reset()
	if err := j.Encode(v); err != nil {
		return sum, fmt.Errorf("identify %T: %w", v, err)
	}
	plain := j.to.Bytes()
	sum = sha256.Sum256(plain[:len(plain)-1]) // without its newline
	if j.to.Cap() <= mostKept {
		encoders.Put(j)
	}
	return sum, nil
}

// scalar appends the JSON of v if v is one of the most frequent kinds of inputs. Otherwise it
// returns nil.
func scalar(to []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		if len(v)+2 > cap(to) {
			return nil
		}
		to = append(append(append(to, '"'), v...), '"')
		if !jsontext.PlainString(to) || bytes.ContainsAny(to, "<>&") {
			return nil
		}
		return to
	case int:
		return strconv.AppendInt(to, int64(v), 10)
	case int64:
		return strconv.AppendInt(to, v, 10)
	case nil:
		return append(to, "null"...)
	}
	return nil
}

// An encoder writes JSON into a reusable buffer.
type encoder struct {
	to bytes.Buffer
	*json.Encoder
}

var encoders = sync.Pool{New: func() any {
	j := new(encoder)
	j.Encoder = json.NewEncoder(&j.to)
	return j
}}

// mostKept is the maximum capacity of a buffer that is kept for reuse.
const mostKept = 64 << 10
