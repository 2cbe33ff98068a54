package cbor

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"
)

var (
	timeType      = reflect.TypeFor[time.Time]()
	bigIntType    = reflect.TypeFor[big.Int]()
	cborMarshaler = reflect.TypeFor[cbor.Marshaler]()
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// A form is what must be known of a type to encode its values. The cbor package prefers MarshalText to MarshalJSON
// when it encodes, and UnmarshalJSON to UnmarshalText when it decodes.
type form struct {
	both   bool // a part has MarshalJSON and MarshalText
	text   bool // a part has MarshalText alone
	own    bool // it encodes itself
	looked bool // values are looked at before they are encoded: see check
	any    bool // a part is an interface
}

// forms has the forms of types that were asked for.
var forms sync.Map // form, by reflect.Type

func formOf(t reflect.Type) form {
	if t == nil {
		return form{}
	}
	if known, ok := forms.Load(t); ok {
		return known.(form)
	}
	var f form
	f.own = f.add(t, map[reflect.Type]bool{})
	forms.Store(t, f)
	return f
}

// add adds what t contributes, and reports whether it encodes itself. within has the types that it is a part of.
func (f *form) add(t reflect.Type, within map[reflect.Type]bool) (own bool) {
	if within[t] {
		f.looked = true // it may contain itself
		return false
	}
	within[t] = true
	defer delete(within, t)
	p := reflect.PointerTo(t)
	switch byJSON, byText := p.Implements(jsonMarshaler), p.Implements(textMarshaler); {
	case t == timeType:
		f.looked = true
		return false
	case t == bigIntType, p.Implements(cborMarshaler):
		return true
	case byJSON && byText:
		f.both = true
		return true
	case byText:
		f.text = true
		return true
	case byJSON:
		return true
	}
	switch t.Kind() {
	case reflect.Interface:
		f.looked, f.any = true, true
	case reflect.Map:
		f.add(t.Key(), within)
		f.add(t.Elem(), within)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		f.add(t.Elem(), within)
	case reflect.Struct:
		for i := range t.NumField() {
			if field := t.Field(i); field.IsExported() || field.Anonymous {
				f.add(field.Type, within)
			}
		}
	}
	return false
}

// maxDepth is how deep values may be nested, with the pointers and interfaces that lead to them.
const maxDepth = 30_000

var (
	errDeep = fmt.Errorf("more than %d levels: it may contain itself", maxDepth)
	errYear = errors.New("the year of a time is not in 0..9999")
)

// check adds what the values in interfaces contribute. It refuses what could not be decoded: values that contain themselves, which
// would not end, times that have no text in RFC 3339, and maps in an interface with keys that have no text in a map[string]any.
func (f *form) check(v reflect.Value, depth int, inAny bool) error {
	if depth > maxDepth {
		return errDeep
	}
	if !v.IsValid() {
		return nil
	}
	t := formOf(v.Type())
	if inAny {
		f.both, f.text = f.both || t.both, f.text || t.text
	}
	if t.own || !t.looked && !inAny {
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		return f.check(v.Elem(), depth+1, inAny)
	case reflect.Interface:
		return f.check(v.Elem(), depth+1, true)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return nil
		}
		for i := range v.Len() {
			if err := f.check(v.Index(i), depth+1, inAny); err != nil {
				return err
			}
		}
	case reflect.Map:
		switch k := v.Type().Key(); {
		case !inAny:
		case formOf(k).own:
			f.both, f.text = true, true // JSON knows the text of such a key
		case k.Kind() != reflect.String && (k.Kind() < reflect.Int || k.Kind() > reflect.Uintptr):
			return fmt.Errorf("a %v in an interface: its keys are neither strings nor integers, so it could not be decoded", v.Type())
		}
		for each := v.MapRange(); each.Next(); {
			if err := f.check(each.Value(), depth+1, inAny); err != nil {
				return err
			}
			if err := f.check(each.Key(), depth+1, inAny); err != nil {
				return err
			}
		}
	case reflect.Struct:
		return f.checkStruct(v, depth, inAny)
	}
	return nil
}

func (f *form) checkStruct(v reflect.Value, depth int, inAny bool) error {
	if v.Type() == timeType {
		if t, ok := reflect.TypeAssert[time.Time](v); ok && (t.Year() < 0 || t.Year() > 9999) {
			return errYear
		}
		return nil
	}
	for i := range v.NumField() {
		if field := v.Type().Field(i); !field.IsExported() && !field.Anonymous {
			continue
		}
		if err := f.check(v.Field(i), depth+1, inAny); err != nil {
			return err
		}
	}
	return nil
}
