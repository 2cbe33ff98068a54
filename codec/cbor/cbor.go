// Package cbor has a codec that stores payloads in CBOR (RFC 8949) instead of JSON:
//
//	eng, err := engine.New(engine.Config{Codec: cbor.Codec, …})
//
// Bytes are stored as bytes and not as base64. A time has the tag of a time, a large integer is exact, and so
// are NaN and the infinities in a result. In a value of type any they come back as []byte, time.Time and
// int64, while JSON makes them strings and float64. A map in it is a map[string]any, in which integers are text.
//
// Each payload names its codec, so an engine with this one still reads what was stored as JSON, and leaves it as it
// is. Every engine and client that reads the store needs the codec: before it is used for the first time, deploy
// Config.Codecs with it everywhere.
//
// # How values are encoded
//
// Fields have the names of their json tags, or of cbor tags, which also have the options toarray and keyasint of
// github.com/fxamacker/cbor. As with JSON, fields that are not exported are left out. The same value is always
// encoded as the same bytes.
//
// A type with a MarshalCBOR encodes itself. One with a MarshalJSON is stored as the JSON that it makes, in a byte
// string with tag 262, which means embedded JSON. One with a MarshalText is stored as text. A value that has a type with both
// methods and another one with a MarshalText alone is stored as embedded JSON as a whole.
//
// A json.RawMessage is stored as embedded JSON, too. That is what a client sends over HTTP, who does not know the types of the
// receiver. It is decoded as JSON is, also into a value of type any.
//
// Inputs, signals and updates must also be values that JSON can encode: two of them are the same if their JSON is. So a client that
// sends one again gets the first answer, whichever codec the engine has by then.
package cbor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/payload"
)

// Codec encodes in CBOR. Its name is "cbor".
var Codec weft.Codec = codec{}

type codec struct{}

func (codec) Name() string { return "cbor" }

var (
	texts    = encMode(cbor.TextMarshalerTextString)
	noTexts  = encMode(cbor.TextMarshalerNone)
	untyped  = decMode(nil)
	decoder  = decMode(transcoder(toJSON))
	jsonHead = []byte{0xd9, tagJSON >> 8, tagJSON & 0xff} // how embedded JSON begins
)

// encMode returns how values are encoded, with or without their methods MarshalText.
func encMode(text cbor.TextMarshalerMode) cbor.EncMode {
	o := cbor.CoreDetEncOptions() // the same bytes for the same value
	o.Time, o.TimeTag = cbor.TimeRFC3339Nano, cbor.EncTagRequired
	o.OmitEmpty = cbor.OmitEmptyGoValue // as JSON does
	o.BinaryMarshaler = cbor.BinaryMarshalerNone
	o.TextMarshaler = text
	o.JSONMarshalerTranscoder = transcoder(embedJSON)
	return must(o.EncMode())
}

// decMode returns how values are decoded, into types with a method UnmarshalJSON by a transcoder.
func decMode(toJSON cbor.Transcoder) cbor.DecMode {
	return must(cbor.DecOptions{
		MaxNestedLevels:           1<<16 - 1,
		MaxArrayElements:          1<<31 - 1, // the size of a payload is limited, and not how many parts it has
		MaxMapPairs:               1<<31 - 1,
		IntDec:                    cbor.IntDecConvertSignedOrBigInt,
		BigIntDec:                 cbor.BigIntDecodePointer,
		UTF8:                      cbor.UTF8DecodeInvalid, // a string may have any bytes
		BinaryUnmarshaler:         cbor.BinaryUnmarshalerNone,
		TextUnmarshaler:           cbor.TextUnmarshalerTextString,
		JSONUnmarshalerTranscoder: toJSON,
	}.DecMode())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are constant
	}
	return v
}

// CheckType returns an error if values of type t have a part that is not stored. engine.New calls it.
func (codec) CheckType(t reflect.Type) error { return payload.Lossless(t) }

func (codec) Encode(_ context.Context, v any) ([]byte, error) {
	f := formOf(reflect.TypeOf(v))
	if f.looked {
		if err := f.check(reflect.ValueOf(v), 0, false); err != nil {
			return nil, err
		}
	}
	switch {
	case f.both && f.text:
		text, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		return embedJSON(text)
	case f.both:
		return noTexts.Marshal(v)
	}
	return texts.Marshal(v)
}

func (codec) Decode(_ context.Context, data []byte, v any) error {
	if text, ok := embeddedJSON(data); ok {
		return json.Unmarshal(text, v)
	}
	if err := decoder.Unmarshal(data, v); err != nil {
		return err
	}
	return settle(reflect.ValueOf(v))
}

// tagJSON is the tag of a byte string that contains JSON.
// See https://www.iana.org/assignments/cbor-tags.
const tagJSON = 262

// embedJSON returns JSON as CBOR.
func embedJSON(text []byte) ([]byte, error) {
	if !json.Valid(text) {
		return nil, errors.New("not valid JSON")
	}
	content, err := cbor.Marshal(text)
	return append(bytes.Clone(jsonHead), content...), err
}

// embeddedJSON returns the JSON that data, one value, embeds.
func embeddedJSON(data []byte) (text []byte, ok bool) {
	content, ok := bytes.CutPrefix(data, jsonHead)
	return text, ok && untyped.Unmarshal(content, &text) == nil
}

// A transcoder is between the JSON of a type's own methods and CBOR.
type transcoder func([]byte) ([]byte, error)

func (f transcoder) Transcode(to io.Writer, from io.Reader) error {
	in, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	out, err := f(in)
	if err != nil {
		return err
	}
	_, err = to.Write(out)
	return err
}

// toJSON returns the JSON for a type that decodes JSON: what it made itself, or, if its code had no method for
// it when the value was stored, the JSON of that.
func toJSON(data []byte) ([]byte, error) {
	if text, ok := embeddedJSON(data); ok {
		return text, nil
	}
	var v any
	if err := untyped.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	v, err := plain(v, func(text []byte) (any, error) { return json.RawMessage(text), nil })
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("it is no JSON: %w", err)
	}
	return text, nil
}
