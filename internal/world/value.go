package world

import (
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"
)

var (
	decoder = must(cbor.DecOptions{MaxNestedLevels: 1000, MaxArrayElements: 1 << 24, MaxMapPairs: 1 << 24, DefaultMapType: nil}.DecMode())
	few     = must(cbor.DecOptions{MaxArrayElements: 1000, MaxMapPairs: 1000}.DecMode()) // for what has few items, which it counts before it decodes any
	encoder = must(cbor.EncOptions{Sort: cbor.SortBytewiseLexical, Time: cbor.TimeRFC3339Nano, TimeTag: cbor.EncTagRequired}.EncMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are constant
	}
	return v
}

// A Value is one value in CBOR, as it came. nil is no value.
type Value = cbor.RawMessage

// data is the fields of an event, in the order in which they came. Their values are not decoded until somebody asks for one.
type data []field

type field struct {
	name  string
	value Value
}

// openData reads the fields of an event: a map with text keys, null, undefined or nothing.
func openData(raw Value) (d data, err error) {
	const (
		mapType    = 5
		indefinite = 31
		stop       = 0xff
	)
	if absentValue(raw) {
		return nil, nil
	}
	if err := decoder.Wellformed(raw); err != nil {
		return nil, err
	}
	if raw[0]>>5 != mapType {
		return nil, fmt.Errorf("it is no map")
	}
	info := raw[0] & 31
	size := map[byte]int{24: 1, 25: 2, 26: 4, 27: 8}[info] // of the number of pairs, in bytes
	rest := raw[1+size:]
	pairs := uint64(info)
	if size > 0 {
		pairs = 0
		for _, b := range raw[1 : 1+size] {
			pairs = pairs<<8 | uint64(b)
		}
	}
	seen := map[string]bool{}
	for i := uint64(0); info == indefinite || i < pairs; i++ {
		if info == indefinite && rest[0] == stop {
			break
		}
		var f field
		if rest, err = decoder.UnmarshalFirst(rest, &f.name); err != nil {
			return nil, fmt.Errorf("a key is no text: %w", err)
		}
		if rest, err = decoder.UnmarshalFirst(rest, &f.value); err != nil {
			return nil, err
		}
		if seen[f.name] {
			return nil, fmt.Errorf("%q is there twice", f.name)
		}
		seen[f.name] = true
		d = append(d, f)
	}
	return d, nil
}

// absentValue reports whether a value is nothing, null or undefined.
func absentValue(v Value) bool {
	return len(v) == 0 || len(v) == 1 && (v[0] == 0xf6 || v[0] == 0xf7)
}

// get returns the value of a field, or nil.
func (d data) get(name string) Value {
	for _, f := range d {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

// has reports whether a field is there and not undefined: null is a value.
func (d data) has(name string) bool {
	v := d.get(name)
	return len(v) > 0 && !(len(v) == 1 && v[0] == 0xf7)
}

// without returns the fields as CBOR, but for one of them; nil if none is left.
func (d data) without(name string) Value {
	kept := 0
	var body []byte
	for _, f := range d {
		if f.name == name {
			continue
		}
		kept++
		body = append(append(body, must(encoder.Marshal(f.name))...), f.value...)
	}
	if kept == 0 {
		return nil
	}
	return append(mapHead(kept), body...)
}

// mapHead returns the beginning of a map with n pairs.
func mapHead(n int) []byte {
	switch {
	case n < 24:
		return []byte{0xa0 | byte(n)}
	case n < 1<<8:
		return []byte{0xb8, byte(n)}
	default:
		return []byte{0xba, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	}
}

// text returns a field that is text; "" if it is not there.
func (d data) text(name string) (s string, err error) {
	v := d.get(name)
	if absentValue(v) {
		return "", nil
	}
	if err := decoder.Unmarshal(v, &s); err != nil {
		return "", Invalid("eventData.%s is no text", name)
	}
	return s, nil
}

// textOf returns a value as text: text as it is, and anything else in the notation of CBOR.
func textOf(v Value) (s string) {
	if decoder.Unmarshal(v, &s) == nil {
		return s
	}
	s, err := cbor.Diagnose(v)
	if err != nil {
		return unknownError
	}
	return s
}

// flag returns a field that is true or false; false if it is not there.
func (d data) flag(name string) (b bool, err error) {
	v := d.get(name)
	if absentValue(v) {
		return false, nil
	}
	if err := decoder.Unmarshal(v, &b); err != nil {
		return false, Invalid("eventData.%s is neither true nor false", name)
	}
	return b, nil
}

// time returns a field that is a time; a zero one if it is not there.
func (d data) time(name string) (time.Time, error) {
	t, ok := TimeOf(d.get(name))
	if !ok {
		return time.Time{}, Invalid("eventData.%s is no time", name)
	}
	return t, nil
}

// TimeOf decodes a time: a date of CBOR, text of RFC 3339, or milliseconds since 1970. It is zero if there is no value.
func TimeOf(v Value) (t time.Time, ok bool) {
	if absentValue(v) {
		return t, true
	}
	var x any
	if decoder.Unmarshal(v, &x) != nil {
		return t, false
	}
	switch x := x.(type) {
	case time.Time:
		return x.Round(time.Millisecond), true // seconds as a float are a little off
	case string:
		t, err := time.Parse(time.RFC3339Nano, x)
		return t, err == nil
	case uint64:
		return time.UnixMilli(int64(min(x, 1<<52))), true
	case float64:
		return time.UnixMilli(int64(x)), x >= 0 && x < 1<<52
	}
	return t, false
}

// payloadOf names the field that has the payload of an event; "" if the type has none.
func payloadOf(t EventType) string {
	switch t {
	case RunCreated, RunStarted, StepCreated, StepStarted:
		return "input"
	case RunCompleted:
		return "output"
	case RunFailed, StepFailed, StepRetrying:
		return "error"
	case StepCompleted:
		return "result"
	case HookCreated:
		return "metadata"
	case HookReceived:
		return "payload"
	}
	return ""
}
