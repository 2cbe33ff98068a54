package record

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/fxamacker/cbor/v2"
)

// Unknown is the fields of a record, by number, that this release does not know because a
// later release wrote them. Pass it to Seal when the record is written again, so that these
// fields survive byte for byte.
//
// This also applies to structs within the record, at any depth. Such a struct has no name, so
// it is identified by its known fields: if they are unchanged, it keeps its unknown fields. If
// it was replaced, or any known field was changed, it is a new value, to which the unknown
// fields do not apply.
type Unknown map[uint64]remnant

// A remnant is the unknown data of one field.
type remnant struct {
	raw   cbor.RawMessage // the whole field, if the field is unknown
	parts []part          // otherwise: its structs that contain unknown data, in order
}

// A part is the unknown data of one struct within a record.
type part struct {
	known []byte // the struct as this release encodes it
	rest  Unknown
}

// With returns u, extended by rest, the unknown data of v. Use it if v, a struct from another
// record, is put into the field with this number.
func (u Unknown) With(field uint64, v any, rest Unknown) (Unknown, error) {
	if len(rest) == 0 {
		return u, nil
	}
	known, err := encoder.Marshal(v)
	if err != nil {
		return nil, err
	}
	all := Unknown{field: {parts: []part{{known, rest}}}}
	for number, r := range u {
		if number == field {
			r.parts = append(r.parts[:len(r.parts):len(r.parts)], all[field].parts...)
		}
		all[number] = r
	}
	return all, nil
}

// split returns the unknown data of a struct of type t that is encoded in body.
func split(body []byte, t reflect.Type) (Unknown, error) {
	var fields map[uint64]cbor.RawMessage
	if err := decoder.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	known := fieldsOf(t)
	rest := Unknown{}
	for number, raw := range fields {
		f, ok := known[number]
		if !ok {
			rest[number] = remnant{raw: raw}
			continue
		}
		parts, err := splitValue(raw, f)
		if err != nil {
			return nil, fmt.Errorf("field %d: %w", number, err)
		}
		if len(parts) > 0 {
			rest[number] = remnant{parts: parts}
		}
	}
	return rest, nil
}

// splitValue returns the parts of a value of type t: of a struct, a pointer to one, or a list
// of either. Other values have none.
func splitValue(raw cbor.RawMessage, t reflect.Type) (parts []part, err error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case isNull(raw):
		return nil, nil
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return nil, nil
		}
		var elements []cbor.RawMessage
		if err := decoder.Unmarshal(raw, &elements); err != nil {
			return nil, err
		}
		for _, e := range elements {
			more, err := splitValue(e, t.Elem())
			if err != nil {
				return nil, err
			}
			parts = append(parts, more...)
		}
		return parts, nil
	case t.Kind() != reflect.Struct:
		return nil, nil
	}
	rest, err := split(raw, t)
	if err != nil || len(rest) == 0 {
		return nil, err
	}
	v := reflect.New(t)
	if err := decoder.Unmarshal(raw, v.Interface()); err != nil {
		return nil, err
	}
	known, err := encoder.Marshal(v.Interface())
	return []part{{known, rest}}, err
}

// merge adds what keep contains and body does not to the struct encoded in body.
func merge(body []byte, keep Unknown) ([]byte, error) {
	var fields map[uint64]cbor.RawMessage
	if err := decoder.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	for number, r := range keep {
		raw, ok := fields[number]
		switch {
		case !ok && r.raw != nil:
			fields[number] = r.raw
		case ok && r.parts != nil:
			parts := r.parts[:len(r.parts):len(r.parts)]
			merged, err := mergeValue(raw, &parts)
			if err != nil {
				return nil, err
			}
			fields[number] = merged
		}
	}
	return encoder.Marshal(fields)
}

// mergeValue adds the parts that belong to a value to it, and removes them from parts.
func mergeValue(raw cbor.RawMessage, parts *[]part) (cbor.RawMessage, error) {
	const list = 4 // the major type of a CBOR array
	if len(raw) == 0 || raw[0]>>5 != list {
		for i, p := range *parts {
			if bytes.Equal(p.known, raw) {
				*parts = append((*parts)[:i:i], (*parts)[i+1:]...)
				return merge(raw, p.rest)
			}
		}
		return raw, nil
	}
	var elements []cbor.RawMessage
	if err := decoder.Unmarshal(raw, &elements); err != nil {
		return nil, err
	}
	for i, e := range elements {
		merged, err := mergeValue(e, parts)
		if err != nil {
			return nil, err
		}
		elements[i] = merged
	}
	return encoder.Marshal(elements)
}

func isNull(raw []byte) bool {
	const null = 0xf6
	return len(raw) == 1 && raw[0] == null
}

// fieldsOf returns the types of a struct's fields by number, including those of embedded
// structs.
func fieldsOf(t reflect.Type) map[uint64]reflect.Type {
	fields := map[uint64]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		number, _, _ := strings.Cut(f.Tag.Get("cbor"), ",")
		if n, err := strconv.ParseUint(number, 10, 64); err == nil {
			fields[n] = f.Type
		}
	}
	return fields
}
