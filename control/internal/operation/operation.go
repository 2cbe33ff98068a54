package operation

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// An Operation is one row of the table of operations: a route, a JSON-RPC method and an audit action
// at once.
type Operation struct {
	Name     string   // "runs.cancel": also the JSON-RPC method and the audit action
	Method   string   // "POST"
	Path     string   // "/v1/runs/{runId}/cancel", as in the document
	Scopes   []string // one of them is enough; nil: no key is needed
	Key      KeyRule
	Home     bool   // only for keys of the home namespace
	RestOnly bool   // JSON-RPC does not have it
	Unread   bool   // the pipeline does not read the body: the operation does, by Call.Body
	Hosted   string // if not "", a handler answers it, and what became of it is known afterwards: the code of a refusal
	Upload   bool   // its body may also be multipart/form-data, which the pipeline does not read
	Do       Action

	Batch     bool // the operation rpc: it has no parameters of its own
	Unsecured bool // served whatever Config.HTTPS says, and after Close
	Unaudited bool
	Follows   bool // the audit row of a change is a commit of its own
}

// A KeyRule says what an operation makes of an idempotency key.
type KeyRule uint8

const (
	KeyUnused KeyRule = iota // not looked at
	KeyOptional
	KeyRequired
)

// An Action is what an operation does: how its parameters are read, and what follows.
type Action struct {
	Fields []Field
	read   func(raw []byte) (any, []Issue) // raw is an object of all parameters by name
	run    func(ctx context.Context, c *Call) (Answer, error)
}

// A Field is a parameter of an operation.
type Field struct {
	Name     string
	In       string // "path", "query" or "body"
	kind     fieldKind
	Required bool  // a text, number or bool whose json tag has no omitempty
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

// An Issue is a problem of one parameter.
type Issue struct {
	Path    string `json:"path"`    // a JSON pointer into the parameters
	Problem string `json:"problem"` // "is required"
}

// Act returns the action of a function. P is a struct of the operation's parameters: json tags name
// them, the tag in:"path" or in:"query" says where REST has them (else in the body). A text, number
// or bool there whose json tag lacks omitempty is required, unless it is a pointer. Unknown and doubled parameters, and null where P has no
// json.RawMessage, are refused. If *P has a method Check() []Issue, it is called then.
func Act[P any](run func(ctx context.Context, c *Call, p *P) (Answer, error)) Action {
	return Action{
		Fields: fieldsOf[P](),
		read:   readerOf[P](),
		run: func(ctx context.Context, c *Call) (Answer, error) {
			return run(ctx, c, c.params.(*P))
		},
	}
}

// Resource returns the REST path of an operation with these parameters, escaped.
func (o *Operation) Resource(path map[string]string) string {
	segments := strings.Split(o.Path, "/")
	for i, s := range segments {
		if strings.HasPrefix(s, "{") {
			segments[i] = url.PathEscape(path[s[1:len(s)-1]])
		}
	}
	return strings.Join(segments, "/")
}

// Lane is the lane of an operation.
func (o *Operation) Lane() string {
	if strings.HasPrefix(o.Path, "/v1/world/") || strings.HasPrefix(o.Path, "/v1/queue/") {
		return "world_proxy"
	}
	return "public"
}

// TakesBody reports whether an operation has a body.
func (o *Operation) TakesBody() bool {
	return o.Method == http.MethodPost || o.Method == http.MethodPut || o.Method == http.MethodPatch
}
