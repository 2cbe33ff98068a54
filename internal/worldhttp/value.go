package worldhttp

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"time"

	"github.com/fxamacker/cbor/v2"
)

var (
	decoder = must(cbor.DecOptions{MaxNestedLevels: 1000, MaxArrayElements: 1 << 24, MaxMapPairs: 1 << 24}.DecMode())
	lenient = must(cbor.DecOptions{MaxNestedLevels: 1000, MaxArrayElements: 1 << 24, MaxMapPairs: 1 << 24, UTF8: cbor.UTF8DecodeInvalid}.DecMode()) // for what is stored
	few     = must(cbor.DecOptions{MaxNestedLevels: 1000, MaxArrayElements: mostItems, MaxMapPairs: mostItems}.DecMode())
	encoder = must(cbor.EncOptions{Time: cbor.TimeRFC3339Nano, TimeTag: cbor.EncTagRequired}.EncMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are constant
	}
	return v
}

// mostItems is the most that a list or a map has that is no payload. The decoder few counts them before it decodes any.
const mostItems = 1000

// What CBOR consists of.
const (
	majorNegative = 1
	majorBytes    = 2
	majorText     = 3
	majorArray    = 4
	majorMap      = 5
	majorTag      = 6
	indefinite    = 31
	stop          = 0xff
	maxDepth      = 1000
)

// Wellformed returns an error if b is not one value in CBOR, within the limits of all that a client sends.
func Wellformed(b []byte) error { return decoder.Wellformed(b) }

// FromJSON returns JSON as CBOR, with the keys of objects in their order.
func FromJSON(text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var b []byte
	b, err := appendJSON(b, d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the value")
	}
	return b, nil
}

func appendJSON(b []byte, d *json.Decoder, depth int) ([]byte, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("more than %d levels", maxDepth)
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '[' {
			b = append(b, majorArray<<5|indefinite)
			for d.More() {
				if b, err = appendJSON(b, d, depth+1); err != nil {
					return nil, err
				}
			}
			_, err = d.Token()
			return append(b, stop), err
		}
		return appendObject(b, d, depth)
	case json.Number:
		if n, err := strconv.ParseInt(t.String(), 10, 64); err == nil {
			return append(b, must(encoder.Marshal(n))...), nil
		}
		f, err := t.Float64()
		if err != nil {
			return nil, err
		}
		return append(b, must(encoder.Marshal(f))...), nil
	default: // text, true, false, null
		return append(b, must(encoder.Marshal(t))...), nil
	}
}

// appendObject appends the rest of an object, whose beginning was read: a map, or bytes.
func appendObject(b []byte, d *json.Decoder, depth int) ([]byte, error) {
	begin := len(b)
	b = append(b, majorMap<<5|indefinite)
	seen := map[string]bool{}
	typed, data := "", ""
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		key := t.(string) // of an object
		if seen[key] {
			return nil, fmt.Errorf("%q is there twice", key)
		}
		seen[key] = true
		b = append(b, must(encoder.Marshal(key))...)
		at := len(b)
		if b, err = appendJSON(b, d, depth+1); err != nil {
			return nil, err
		}
		if b[at]>>5 != majorText {
			continue // not decoded, since that walks all of it
		}
		switch key {
		case "__type":
			_ = decoder.Unmarshal(b[at:], &typed) // text can be decoded
		case "data":
			_ = decoder.Unmarshal(b[at:], &data)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if typed == "Uint8Array" && len(seen) == 2 && seen["data"] {
		raw, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil, fmt.Errorf("a Uint8Array: %w", err)
		}
		return append(b[:begin], must(encoder.Marshal(raw))...), nil
	}
	return append(b, stop), nil
}

// toJSON returns CBOR, which is well formed, as JSON.
func toJSON(raw []byte) ([]byte, error) {
	var b bytes.Buffer
	_, err := writeJSON(&b, raw)
	return b.Bytes(), err
}

// undefined reports whether a value is JavaScript's undefined: JSON leaves it out of objects.
func undefined(raw []byte) bool { return raw[0] == 0xf7 }

// writeJSON writes the first value of raw, and returns what follows it. It writes any value: a date that is none as what it has, and
// text with U+FFFD for what is no UTF-8. A client may store what no client in JSON would, and lists have to stay readable.
func writeJSON(b *bytes.Buffer, raw []byte) (rest []byte, err error) {
	major, info := raw[0]>>5, raw[0]&31
	var n uint64
	size := 0
	switch {
	case info < 24:
		n = uint64(info)
	case info <= 27:
		size = 1 << (info - 24)
		var whole [8]byte
		copy(whole[8-size:], raw[1:1+size])
		n = binary.BigEndian.Uint64(whole[:])
	}
	inner := raw[1+size:]
	more := func(i uint64, rest []byte) bool {
		if info == indefinite {
			return rest[0] != stop
		}
		return i < n
	}
	end := func(rest []byte) []byte {
		if info == indefinite {
			return rest[1:]
		}
		return rest
	}
	switch major {
	case majorArray:
		b.WriteByte('[')
		for i := uint64(0); more(i, inner); i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			if inner, err = writeJSON(b, inner); err != nil {
				return nil, err
			}
		}
		b.WriteByte(']')
		return end(inner), nil
	case majorMap:
		b.WriteByte('{')
		first := true
		for i := uint64(0); more(i, inner); i++ {
			var key any
			if inner, err = lenient.UnmarshalFirst(inner, &key); err != nil {
				return nil, err
			}
			if undefined(inner) {
				inner = inner[1:]
				continue
			}
			if !first {
				b.WriteByte(',')
			}
			first = false
			writeText(b, fmt.Sprint(key))
			b.WriteByte(':')
			if inner, err = writeJSON(b, inner); err != nil {
				return nil, err
			}
		}
		b.WriteByte('}')
		return end(inner), nil
	case majorTag:
		if content := inner[0] >> 5; (n == 0 || n == 1) && content != majorArray && content != majorMap && content != majorTag {
			var t time.Time
			if rest, err = decoder.UnmarshalFirst(raw, &t); err == nil {
				writeText(b, t.UTC().Round(time.Millisecond).Format("2006-01-02T15:04:05.000Z07:00"))
				return rest, nil
			}
		}
		return writeJSON(b, inner)
	}
	var v any
	if rest, err = lenient.UnmarshalFirst(raw, &v); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case []byte:
		b.WriteString(`{"__type":"Uint8Array","data":"` + base64.StdEncoding.EncodeToString(v) + `"}`)
	case string:
		writeText(b, v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			b.WriteString("null") // as JavaScript does
			return rest, nil
		}
		text, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		b.Write(text)
	case nil:
		b.WriteString("null")
	case big.Int: // below the int64s
		b.WriteString(v.String())
	default:
		fmt.Fprint(b, v) // a number, true, false
	}
	return rest, nil
}

func writeText(b *bytes.Buffer, s string) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)         // text can be encoded
	b.Truncate(b.Len() - 1) // a line feed
}
