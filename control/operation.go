package control

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// An operation is one row of the table of operations: a route, a JSON-RPC method and an audit action
// at once.
type operation struct {
	name     string   // "runs.cancel": also the JSON-RPC method and the audit action
	method   string   // "POST"
	path     string   // "/v1/runs/{runId}/cancel", as in the document
	scopes   []string // one of them is enough; nil: no key is needed
	key      keyRule
	home     bool   // only for keys of the home namespace
	restOnly bool   // JSON-RPC does not have it
	unread   bool   // the pipeline does not read the body: run reads call.request
	hosted   string // if not "", a handler answers it, and what became of it is known afterwards: the code of a refusal
	upload   bool   // its body may also be multipart/form-data, which the pipeline does not read
	do       action

	batch     bool // the operation rpc: it has no parameters of its own
	unsecured bool // served whatever Config.HTTPS says, and after Close
	unaudited bool
	follows   bool // the audit row of a change is a commit of its own
}

// keyRule says what an operation makes of an idempotency key.
type keyRule uint8

const (
	keyUnused keyRule = iota // not looked at
	keyOptional
	keyRequired
)

// An action is what an operation does: how its parameters are read, and what follows.
type action struct {
	fields []field
	read   func(raw []byte) (any, []issue) // raw is an object of all parameters by name
	run    func(ctx context.Context, c *call) (answer, error)
}

// A field is a parameter of an operation.
type field struct {
	name     string
	in       string // "path", "query" or "body"
	kind     fieldKind
	required bool  // a text, number or bool whose json tag has no omitempty
	index    []int // of the field in the struct
}

// fieldKind says how the text of a path or query is read.
type fieldKind uint8

const (
	kindText fieldKind = iota
	kindNumber
	kindBool
	kindTexts // may be repeated
)

// An issue is a problem of one parameter.
type issue struct {
	Path    string `json:"path"`    // a JSON pointer into the parameters
	Problem string `json:"problem"` // "is required"
}

// act returns the action of a function. P is a struct of the operation's parameters: json tags name
// them, the tag in:"path" or in:"query" says where REST has them (else in the body). A text, number
// or bool there whose json tag lacks omitempty is required, unless it is a pointer. Unknown and doubled parameters, and null where P has no
// json.RawMessage, are refused. If *P has a method Check() []issue, it is called then.
func act[P any](run func(ctx context.Context, c *call, p *P) (answer, error)) action {
	return action{
		fields: fieldsOf[P](),
		read:   readerOf[P](),
		run: func(ctx context.Context, c *call) (answer, error) {
			return run(ctx, c, c.params.(*P))
		},
	}
}

// resource returns the REST path of an operation with these parameters, escaped.
func (o *operation) resource(path map[string]string) string {
	segments := strings.Split(o.path, "/")
	for i, s := range segments {
		if strings.HasPrefix(s, "{") {
			segments[i] = url.PathEscape(path[s[1:len(s)-1]])
		}
	}
	return strings.Join(segments, "/")
}

// lane is the lane of an operation.
func (o *operation) lane() string {
	if strings.HasPrefix(o.path, "/v1/world/") || strings.HasPrefix(o.path, "/v1/queue/") {
		return "world_proxy"
	}
	return "public"
}

// takesBody reports whether an operation has a body.
func (o *operation) takesBody() bool {
	return o.method == http.MethodPost || o.method == http.MethodPut || o.method == http.MethodPatch
}
