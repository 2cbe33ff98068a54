package operation

import (
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// fieldsOf returns the parameters of the struct P, also those of its embedded structs.
func fieldsOf[P any]() (fields []Field) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[P]()) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || name == "" || name == "-" {
			continue
		}
		in := f.Tag.Get("in")
		if in == "" {
			in = "body"
		}
		fields = append(fields, Field{Name: name, In: in, kind: kindOf(f.Type), Required: in != "query" && !strings.Contains(options, "omitempty"), index: f.Index})
	}
	return fields
}

func kindOf(t reflect.Type) fieldKind {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return kindNumber
	case reflect.Bool:
		return kindBool
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 { // of which a json.RawMessage is
			return kindTexts
		}
	}
	return kindText
}

// jsonTypeOf says in words which JSON a type is decoded from.
func jsonTypeOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Time]() {
		return "a time as in RFC 3339"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "an array"
	}
	switch kindOf(t) {
	case kindNumber:
		if t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64 {
			return "a number"
		}
		return "a whole number"
	case kindBool:
		return "true or false"
	}
	return ""
}

// A Checker is a struct of parameters that has rules of its own. Check returns what is wrong. The reader of the parameters finds
// it by its method: a package says of each of its Checkers that it is one, so that it does not lose its rules unseen.
type Checker interface{ Check() []Issue }

// readerOf returns what decodes raw, an object of all parameters by name, into a *P, and checks it.
func readerOf[P any]() func(raw []byte) (any, []Issue) {
	fields := fieldsOf[P]()
	return func(raw []byte) (any, []Issue) {
		p := new(P)
		if err := decodeStrictly(raw, p); err != nil {
			return nil, []Issue{{Path: err.Path, Problem: err.Problem}}
		}
		issues := missing(fields, raw, reflect.ValueOf(p).Elem())
		if c, ok := any(p).(Checker); ok {
			for _, issue := range c.Check() {
				if !slices.ContainsFunc(issues, func(i Issue) bool { return i.Path == issue.Path && i.Problem == isRequired }) {
					issues = append(issues, issue)
				}
			}
		}
		if len(issues) > 0 {
			return nil, issues
		}
		return p, nil
	}
}

const isRequired = "is required"

// missing returns the required parameters that raw, which is valid, does not have. It was decoded into params.
func missing(fields []Field, raw []byte, params reflect.Value) (issues []Issue) {
	var all map[string]jsontext.Value
	for _, f := range fields {
		if !f.Required || !params.FieldByIndex(f.index).IsZero() {
			continue // only what was decoded to nothing may be missing
		}
		if all == nil {
			all = map[string]jsontext.Value{}
			if err := jsonv2.Unmarshal(raw, &all); err != nil {
				return []Issue{{Path: "", Problem: "must be an object"}}
			}
		}
		if _, ok := all[f.Name]; !ok {
			issues = append(issues, Issue{Path: Pointer(f.Name), Problem: isRequired})
		}
	}
	return issues
}

// Gather returns the parameters of a REST request as one JSON object: those of its path and its query,
// and the members of its body, which is empty or has passed CheckJSON.
func (o *Operation) Gather(path map[string]string, query url.Values, body []byte) (jsontext.Value, []Issue) {
	var issues []Issue
	bad := func(name, problem string) { issues = append(issues, Issue{Path: Pointer(name), Problem: problem}) }
	all := map[string]jsontext.Value{}
	if len(body) > 0 {
		if jsontext.Value(body).Kind() != jsontext.KindBeginObject {
			return nil, []Issue{{Path: "", Problem: "must be an object"}}
		}
		if len(path) == 0 && len(query) == 0 && !slices.ContainsFunc(o.Do.Fields, func(f Field) bool { return f.In != "body" }) {
			return body, nil // nothing to add, and read refuses what is unknown
		}
		if err := jsonv2.Unmarshal(body, &all); err != nil {
			return nil, []Issue{{Path: "", Problem: SyntaxProblem(err).Error()}}
		}
	}
	for name := range all {
		if f := o.Field(name); f == nil || f.In != "body" {
			bad(name, "is unknown")
		}
	}
	for name, values := range query {
		switch f := o.Field(name); {
		case f == nil || f.In != "query":
			bad(name, "is unknown")
		default:
			value, problem := f.fromQuery(values)
			if problem != "" {
				bad(name, problem)
				continue
			}
			all[name] = value
		}
	}
	for name, value := range path {
		if !utf8.ValidString(value) {
			bad(name, notUTF8)
			continue
		}
		all[name] = quoted(value)
	}
	if len(issues) > 0 {
		slices.SortFunc(issues, func(a, b Issue) int { return strings.Compare(a.Path, b.Path) })
		return nil, issues
	}
	raw, err := jsonv2.Marshal(all, jsonv2.Deterministic(true))
	if err != nil { // the members were valid before
		return nil, []Issue{{Path: "", Problem: "is not valid JSON"}}
	}
	return raw, nil
}

// Field returns a parameter of an operation; nil: there is none of this name.
func (o *Operation) Field(name string) *Field {
	for i := range o.Do.Fields {
		if o.Do.Fields[i].Name == name {
			return &o.Do.Fields[i]
		}
	}
	return nil
}

const notUTF8 = "is not valid UTF-8"

// fromQuery returns the JSON of a parameter's texts.
func (f *Field) fromQuery(values []string) (_ jsontext.Value, problem string) {
	for _, v := range values {
		if !utf8.ValidString(v) {
			return nil, notUTF8
		}
	}
	if f.kind == kindTexts {
		list := []byte{'['}
		for i, v := range values {
			if i > 0 {
				list = append(list, ',')
			}
			list = append(list, quoted(v)...)
		}
		return append(list, ']'), ""
	}
	if len(values) > 1 {
		return nil, "occurs twice"
	}
	v := jsontext.Value(values[0])
	switch f.kind {
	case kindNumber:
		if v.Kind() != jsontext.KindNumber || !v.IsValid() {
			return nil, "must be a number"
		}
		return v, ""
	case kindBool:
		if string(v) != "true" && string(v) != "false" {
			return nil, "must be true or false"
		}
		return v, ""
	}
	return quoted(values[0]), ""
}

// quoted returns the JSON string of valid UTF-8.
func quoted(s string) jsontext.Value {
	q, _ := jsontext.AppendQuote(nil, s) // what is not valid was refused before
	return q
}

// Pointer returns the JSON pointer of a member of the document.
func Pointer(name string) string {
	return string(jsontext.Pointer("").AppendToken(name))
}
