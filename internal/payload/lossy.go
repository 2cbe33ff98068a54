package payload

import (
	"bytes"
	"cmp"
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/weft-go/weft"
)

// lossless caches the results of Lossless.
var lossless sync.Map // error or nil, by reflect.Type

// Lossless returns nil if JSON can encode and decode values of type t without leaving out a part
// of them, as far as the type shows. Otherwise the error names the part. A field with the tag
// `json:"-"` is left out on purpose. Of a type with an encoding of its own it says nothing.
func Lossless(t reflect.Type) error {
	if known, ok := lossless.Load(t); ok {
		err, _ := known.(error)
		return err
	}
	err := lossIn(t, "", nil)
	lossless.Store(t, err)
	return err
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// lossIn is Lossless for a part of a value, without the cache. within holds the types that it is
// a part of.
func lossIn(t reflect.Type, path string, within []reflect.Type) error {
	if slices.Contains(within, t) || encodesItself(t) {
		return nil
	}
	within = append(within, t)
	problem := func(format string, args ...any) error {
		if path == "" {
			path = t.String()
		}
		return fmt.Errorf("%s %s", path, fmt.Sprintf(format, args...))
	}
	switch t.Kind() {
	case reflect.Pointer:
		return lossIn(t.Elem(), path, within)
	case reflect.Slice, reflect.Array:
		return lossIn(t.Elem(), path+"[]", within)
	case reflect.Map:
		switch k := t.Key(); {
		case k.Kind() == reflect.String, k.Kind() >= reflect.Int && k.Kind() <= reflect.Uintptr, k.Implements(textMarshaler):
			return lossIn(t.Elem(), path+"[]", within)
		}
		return problem("is a map with keys of type %v, which JSON cannot encode", t.Key())
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return problem("is an interface, %v, and JSON cannot tell which type to decode", t)
		}
	case reflect.Func, reflect.Chan, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return problem("is a %v, which JSON cannot encode", t)
	case reflect.Struct:
		for i := range t.NumField() {
			if err := lossInField(t.Field(i), path, within); err != nil {
				return err
			}
		}
		return lossInNames(t, path)
	}
	return nil
}

// A member is a field that JSON has under a name.
type member struct {
	path string
	rank int // of those with a name JSON has the one with the lowest, unless two have it
	size uintptr
}

// lossInNames returns an error if JSON leaves out a field of the struct t because another one has its name.
func lossInNames(t reflect.Type, path string) error {
	members := map[string][]member{}
	addMembers(members, t, path, nil)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		all := members[name]
		slices.SortStableFunc(all, func(a, b member) int { return cmp.Compare(a.rank, b.rank) })
		for i, m := range all {
			other := all[0]
			if i == 0 {
				if len(all) == 1 || m.rank < all[1].rank {
					continue
				}
				other = all[1]
			}
			if m.size > 0 {
				return fmt.Errorf("%s has the same name in JSON as %s, %q, so JSON leaves it out: give one of them another name, or tag one `json:\"-\"` if that is meant", m.path, other.path, name)
			}
		}
	}
	return nil
}

// addMembers adds the members of the struct t, which is embedded in the structs of within.
func addMembers(to map[string][]member, t reflect.Type, path string, within []reflect.Type) {
	if slices.Contains(within, t) {
		return
	}
	within = append(within, t)
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		embedded := f.Type
		if f.Anonymous && embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		isStruct := f.Anonymous && embedded.Kind() == reflect.Struct
		if tag == "-" || !f.IsExported() && !isStruct {
			continue
		}
		m := member{f.Name, 2 * len(within), f.Type.Size()}
		if path != "" {
			m.path = path + "." + f.Name
		}
		name, _, _ := strings.Cut(tag, ",")
		switch {
		case name != "":
			m.rank-- // a tag comes before the name of a field
		case isStruct:
			addMembers(to, embedded, m.path, within)
			continue
		default:
			name = f.Name
		}
		to[name] = append(to[name], m)
	}
}

func lossInField(f reflect.StructField, path string, within []reflect.Type) error {
	if path != "" {
		path += "."
	}
	path += f.Name
	switch {
	case f.Tag.Get("json") == "-", f.Type.Size() == 0:
		return nil
	case f.IsExported(), f.Anonymous && f.Type.Kind() == reflect.Struct:
		return lossIn(f.Type, path, within)
	}
	return fmt.Errorf("%s is not exported, so JSON leaves it out: export it, give its type an encoding of its own, or tag it `json:\"-\"` if that is meant", path)
}

func encodesItself(t reflect.Type) bool {
	for _, t := range []reflect.Type{t, reflect.PointerTo(t)} {
		if t.Implements(marshaler) || t.Implements(textMarshaler) {
			return true
		}
	}
	return false
}

// CheckType returns an error if c leaves out a part of values of type t: JSON, and a codec that says so.
func CheckType(c weft.Codec, t reflect.Type) error {
	switch c := c.(type) {
	case interface{ CheckType(reflect.Type) error }:
		return c.CheckType(t)
	default:
		if c == weft.JSON {
			return Lossless(t)
		}
		return nil
	}
}

// returning has the types of which a value was decoded as it was encoded.
var returning sync.Map // bool, by returns

type returns struct {
	of    reflect.Type
	codec string
}

// Returns checks that p, the encoded v, can be decoded into a value that is encoded as v is. It
// does so for one value of each type: the error is one of the type and not of the value.
func (c *Codecs) Returns(ctx context.Context, v any, p Payload) error {
	if v == nil {
		return nil
	}
	key := returns{reflect.TypeOf(v), c.Own.Name()}
	if _, known := returning.Load(key); known {
		return nil
	}
	if err := CheckType(c.Own, key.of); err != nil {
		return err
	}
	again := reflect.New(key.of)
	if err := c.Decode(ctx, p, again.Interface()); err != nil {
		return err
	}
	was, err := json.Marshal(v)
	if err != nil {
		return err
	}
	is, err := json.Marshal(again.Elem().Interface())
	if err != nil {
		return err
	}
	if !bytes.Equal(was, is) {
		return fmt.Errorf("a %v is not decoded as it was: encoded it is %s, and decoded and encoded again %s", key.of, excerpt(was), excerpt(is))
	}
	returning.Store(key, true)
	return nil
}

// excerpt returns the begin of an encoded value.
func excerpt(data []byte) string {
	const most = 200
	if len(data) > most {
		return Recordable(string(data[:most])) + "…"
	}
	return string(data)
}
