package golden

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// uncovered names what the package in dir stores but no record contains: fields as "Type.Field
// (field 7)", types, and constants. Check has verified that the records match their golden
// files.
func uncovered(t *testing.T, dir string, records map[string]Record) (missing []string) {
	seen := coverage{fields: map[string]bool{}, values: map[string]bool{}, types: map[string]reflect.Type{}}
	for _, r := range records {
		seen.walk(reflect.ValueOf(r.Value))
	}
	src := parse(t, dir)
	for name, numbers := range src.stored {
		typ, ok := seen.types[name]
		if !ok {
			missing = append(missing, fmt.Sprintf("type %s, which is stored (it has fields with cbor numbers),", name))
			continue
		}
		for field, number := range numbers {
			if !seen.fields[name+"."+field] {
				missing = append(missing, fmt.Sprintf("%s.%s (field %s)", name, field, number))
			}
			if f, ok := typ.FieldByName(field); ok && f.Type.Kind() == reflect.String {
				for _, value := range src.constants[f.Type.Name()] {
					if !seen.values[f.Type.Name()+"="+value] {
						missing = append(missing, fmt.Sprintf("the value %q of type %s", value, f.Type.Name()))
					}
				}
			}
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

// A coverage is what the records contain.
type coverage struct {
	fields map[string]bool // "Type.Field" that is not zero
	values map[string]bool // "Type=value" of named string types
	types  map[string]reflect.Type
}

func (c *coverage) walk(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c.walk(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			c.walk(v.Index(i))
		}
	case reflect.String:
		c.values[v.Type().Name()+"="+v.String()] = true
	case reflect.Struct:
		t := v.Type()
		c.types[t.Name()] = t
		for i := range t.NumField() {
			if f := t.Field(i); number(f.Tag) == "" {
				if f.Anonymous && f.Tag.Get("cbor") == "" { // its fields are stored as those of v
					c.walk(v.Field(i))
				}
				continue
			}
			if !v.Field(i).IsZero() {
				c.fields[t.Name()+"."+t.Field(i).Name] = true
			}
			c.walk(v.Field(i))
		}
	}
}

// A source is what the files of a package, without tests, declare.
type source struct {
	stored    map[string]map[string]string // struct type: field: its number
	constants map[string][]string          // string type: values
}

func parse(t *testing.T, dir string) source {
	t.Helper()
	s := source{map[string]map[string]string{}, map[string][]string{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, s.take)
	}
	return s
}

func (s source) take(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.TypeSpec:
		st, ok := n.Type.(*ast.StructType)
		if !ok {
			break
		}
		for _, f := range st.Fields.List {
			if f.Tag == nil {
				continue
			}
			tag, _ := strconv.Unquote(f.Tag.Value)
			num := number(reflect.StructTag(tag))
			if num == "" {
				continue
			}
			if s.stored[n.Name.Name] == nil {
				s.stored[n.Name.Name] = map[string]string{}
			}
			for _, name := range f.Names {
				s.stored[n.Name.Name][name.Name] = num
			}
		}
	case *ast.ValueSpec:
		typ, ok := n.Type.(*ast.Ident)
		if !ok {
			break
		}
		for _, v := range n.Values {
			if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				value, _ := strconv.Unquote(lit.Value)
				s.constants[typ.Name] = append(s.constants[typ.Name], value)
			}
		}
	}
	return true
}

// number returns the number under which a field is stored; "" means that it is not stored.
func number(tag reflect.StructTag) string {
	n, _, _ := strings.Cut(tag.Get("cbor"), ",")
	if n == "-" {
		return ""
	}
	return n
}
