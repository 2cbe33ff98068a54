package control

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weft-go/weft/control/internal/operation"
)

// A documented is what the document says of an operation, and what the table says.
type documented struct {
	method, path, scopes, lane, key string
	home, rpc, public               bool
}

// The operations of the document are those of the table, with their methods, paths, scopes, lanes and keys.
func TestOperationsAreTheDocument(t *testing.T) {
	data, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	want := map[string]documented{}
	for path, methods := range document.Paths {
		for method, raw := range methods {
			if method == "parameters" {
				continue
			}
			var o struct {
				OperationID string                `json:"operationId"`
				Scopes      []string              `json:"x-weft-scope"`
				Lane        string                `json:"x-weft-lane"`
				Key         string                `json:"x-weft-key"`
				Home        bool                  `json:"x-weft-home"`
				RPC         *bool                 `json:"x-weft-rpc"`
				Security    []map[string][]string `json:"security"`
			}
			if err := json.Unmarshal(raw, &o); err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			slices.Sort(o.Scopes)
			want[o.OperationID] = documented{
				method: strings.ToUpper(method), path: path, scopes: strings.Join(o.Scopes, " "), lane: o.Lane, key: o.Key,
				home: o.Home, rpc: o.RPC == nil || *o.RPC, public: o.Security != nil && len(o.Security) == 0,
			}
		}
	}
	got := map[string]documented{}
	for _, o := range operations() {
		got[o.Name] = documented{
			method: o.Method, path: o.Path, scopes: strings.Join(slices.Sorted(slices.Values(o.Scopes)), " "), lane: o.Lane(),
			key:  map[operation.KeyRule]string{operation.KeyUnused: "unused", operation.KeyOptional: "optional", operation.KeyRequired: "required"}[o.Key],
			home: o.Home, rpc: !o.RestOnly, public: o.Scopes == nil,
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if w, g := want[name], got[name]; w != g {
			t.Errorf("%s is %+v in the table, and %+v in the document", name, g, w)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is not in the document", name)
		}
	}
}

// The parameters of an operation are those of its path, its query and its body in the document.
func TestParametersAreTheDocument(t *testing.T) {
	data, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var root any
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	member := func(o any, names ...string) any {
		for _, name := range names {
			m, _ := o.(map[string]any)
			if o = m[name]; o == nil {
				return nil
			}
		}
		if ref, ok := o.(map[string]any); ok && ref["$ref"] != nil {
			at := root
			for _, name := range strings.Split(ref["$ref"].(string), "/")[1:] {
				at = at.(map[string]any)[name]
			}
			return at
		}
		return o
	}
	for _, o := range operations() {
		if o.Name == "rpc" || o.Unread { // their bodies are others'
			continue
		}
		path := member(root, "paths", o.Path)
		operation := member(path, strings.ToLower(o.Method))
		want := map[string]bool{} // "path runId" and whether it is required
		for _, list := range []any{member(path, "parameters"), member(operation, "parameters")} {
			parameters, _ := list.([]any)
			for _, p := range parameters {
				p := member(map[string]any{"": p}, "").(map[string]any)
				if p["in"] != "header" {
					want[p["in"].(string)+" "+p["name"].(string)] = p["required"] == true
				}
			}
		}
		if body := member(operation, "requestBody", "content", "application/json", "schema"); body != nil {
			required, _ := member(body, "required").([]any)
			for name := range member(body, "properties").(map[string]any) {
				want["body "+name] = slices.Contains(required, any(name))
			}
		}
		got := map[string]bool{}
		for _, f := range o.Do.Fields {
			got[f.In+" "+f.Name] = f.Required
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if required, ok := got[name]; !ok {
				t.Errorf("%s does not take %s, which is in the document", o.Name, name)
			} else if required != want[name] && o.Name != "deployments.create" { // its multipart form has another check
				t.Errorf("%s: %s is required: %t, in the document: %t", o.Name, name, required, want[name])
			}
		}
		for name := range got {
			if _, ok := want[name]; !ok {
				t.Errorf("%s takes %s, which is not in the document", o.Name, name)
			}
		}
	}
}

// operations is the table of all operations.
func operations() []*operation.Operation { return new(Plane).operations() }
