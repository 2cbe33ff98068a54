package golden

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-go/weft/internal/record"
)

// laterField is the number of a field that no release has.
const laterField = uint64(1) << 40

// Later is a record as a later release would have left it: the record itself, and each
// struct within it, has one more field. text tells these fields from those of other
// calls. What has one already keeps it.
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

// Kept says what the record after has lost of what a later release put into before:
// the field of the record itself, and that of each struct within it which is there
// unchanged. "" is nothing.
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
			// As many as are left of them, if some have gone.
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

// structs are those in v, by what is known of them.
func structs(v any) map[string][]string {
	all := map[string][]string{}
	walk(v, func(m map[any]any) {
		known := fmt.Sprint(strip(m))
		all[known] = append(all[known], fmt.Sprint(m))
	})
	return all
}

// strip returns v without what a later release put into it.
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

// walk calls f for each struct in v, those within before what they are in, and not for
// what is in a field of a later release.
func walk(v any, f func(map[any]any)) {
	switch v := v.(type) {
	case map[any]any:
		for _, k := range slices.SortedFunc(maps.Keys(v), func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
			if k != any(laterField) {
				walk(v[k], f)
			}
		}
		f(v)
	case []any:
		for _, e := range v {
			walk(e, f)
		}
	}
}
