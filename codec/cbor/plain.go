package cbor

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"

	"github.com/fxamacker/cbor/v2"
)

// settle makes the interfaces in v, which is decoded, what JSON would make them: see plain.
func settle(v reflect.Value) error {
	if !formOf(v.Type()).any {
		return nil
	}
	switch v.Kind() {
	case reflect.Interface:
		x, err := plain(v.Interface(), func(text []byte) (x any, err error) { return x, json.Unmarshal(text, &x) })
		if err != nil || x == nil {
			v.SetZero()
			return err
		}
		v.Set(reflect.ValueOf(x))
	case reflect.Pointer:
		if !v.IsNil() {
			return settle(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := settle(v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			was := v.MapIndex(key)
			if !was.IsValid() {
				continue // the key is not equal to itself
			}
			value := reflect.New(was.Type()).Elem()
			value.Set(was)
			if err := settle(value); err != nil {
				return err
			}
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); !f.IsExported() && (!f.Anonymous || f.Type.Kind() != reflect.Struct) {
				continue
			}
			if err := settle(v.Field(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// plain returns x, which is decoded into an interface, with a map[string]any for each map, and with what embedded makes of the JSON in it.
func plain(x any, embedded func(text []byte) (any, error)) (_ any, err error) {
	switch x := x.(type) {
	case []any:
		for i := range x {
			if x[i], err = plain(x[i], embedded); err != nil {
				return nil, err
			}
		}
	case map[any]any:
		m := make(map[string]any, len(x))
		for k, v := range x {
			var key string
			switch k := k.(type) {
			case string:
				key = k
			case int64, *big.Int:
				key = fmt.Sprint(k)
			default:
				return nil, fmt.Errorf("a map with a key that is a %T", k)
			}
			if _, twice := m[key]; twice {
				return nil, fmt.Errorf("a map with two keys %q", key)
			}
			if m[key], err = plain(v, embedded); err != nil {
				return nil, err
			}
		}
		return m, nil
	case cbor.Tag:
		if text, ok := x.Content.([]byte); ok && x.Number == tagJSON {
			return embedded(text)
		}
		x.Content, err = plain(x.Content, embedded)
		return x, err
	}
	return x, nil
}
