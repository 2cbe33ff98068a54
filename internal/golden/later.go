package golden

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-go/weft/internal/record"
)

// laterField is the number of a field that no release uses.
const laterField = uint64(1) << 40

// Later returns a record as a later release would write it: the record and each struct within
// it has one additional field. text makes these fields different from those of other calls. A
// struct that already has such a field keeps it.
func Later(key, raw []byte, version byte, text string) ([]byte, error) {
	fields, err := decode(key, raw, version)
	if err != nil {
		return nil, err
	}
	n := 0
	walk(fields, func(m map[any]any) {
		if m[laterField] == nil {
			n++
			m[laterField] = map[any]any{uint64(7): fmt.Sprintf("%s/%d", text, n), "list": []any{[]byte{0xff}, -1.5, nil, true}}
		}
	})
	return record.Seal(key, version, fields, nil)
}

// Kept reports what the record after has lost of the additional fields of before: the field of
// the record itself, or that of a struct within it that is otherwise unchanged. "" means
// nothing.
func Kept(key, before, after []byte, version byte) (lost string, err error) {
	was, err := decode(key, before, version)
	if err != nil {
		return "", err
	}
	is, err := decode(key, after, version)
	if err != nil {
		return "", err
	}
	if a, b := fmt.Sprint(was[laterField]), fmt.Sprint(is[laterField]); a != b {
		return fmt.Sprintf("the record had %s, has %s", a, b), nil
	}
	for number := range was {
		had, has := structs(was[number]), structs(is[number])
		for known, all := range had {
			missing := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(has[known], s) })
			// If some of these structs are gone, the others must have kept their fields.
			if there := len(has[known]); there > len(all)-len(missing) && len(missing) > 0 {
				return fmt.Sprintf("field %v had %s, has %s", number, strings.Join(missing, ", "), strings.Join(has[known], ", ")), nil
			}
		}
	}
	return "", nil
}

func decode(key, raw []byte, version byte) (map[any]any, error) {
	fields := map[any]any{}
	_, err := record.Open(key, raw, version, &fields)
	return fields, err
}

// structs returns the structs in v, by their known fields.
func structs(v any) map[string][]string {
	all := map[string][]string{}
	walk(v, func(m map[any]any) {
		known := fmt.Sprint(strip(m))
		all[known] = append(all[known], fmt.Sprint(m))
	})
	return all
}

// strip returns v without the additional fields.
func strip(v any) any {
	switch v := v.(type) {
	case map[any]any:
		c := map[any]any{}
		for k, e := range v {
			if k != any(laterField) {
				c[k] = strip(e)
			}
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, e := range v {
			c[i] = strip(e)
		}
		return c
	}
	return v
}

// isMap reports whether v is a map by names, and not a struct, whose fields have numbers.
func isMap(v map[any]any) bool {
	for k := range v {
		if _, named := k.(string); named {
			return true
		}
	}
	return false
}

// walk calls f for each struct in v, inner structs first, but not for those inside additional
// fields.
func walk(v any, f func(map[any]any)) {
	switch v := v.(type) {
	case map[any]any:
		for _, k := range slices.SortedFunc(maps.Keys(v), func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
			if k != any(laterField) {
				walk(v[k], f)
			}
		}
		if !isMap(v) {
			f(v)
		}
	case []any:
		for _, e := range v {
			walk(e, f)
		}
	}
}
