package control

import (
	"context"
	"net/http"
	"slices"
)

// An operation is one row of the table of operations: a route, a JSON-RPC method and an audit action
// at once.
type operation struct {
	name     string   // "runs.cancel": also the JSON-RPC method and the audit action
	method   string   // "POST"
	path     string   // "/v1/runs/{runId}/cancel", as in the document
	scopes   []string // one of them is enough; nil: no key is needed
	key      keyRule
	home     bool // only for keys of the home namespace
	restOnly bool // JSON-RPC does not have it
	unread   bool // the pipeline does not read the body: run reads call.request
	do       action
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
	name string
	in   string // "path", "query" or "body"
	kind fieldKind
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
// them, the tag in:"path" or in:"query" says where REST has them (else in the body). Parameters
// are optional unless P says otherwise: if *P has a method check() []issue, it is called.
// Unknown and doubled parameters, and null where P has no json.RawMessage, are refused.
func act[P any](run func(ctx context.Context, c *call, p *P) (answer, error)) action {
	return action{
		fields: fieldsOf[P](),
		read:   readParams[P],
		run: func(ctx context.Context, c *call) (answer, error) {
			return run(ctx, c, c.params.(*P))
		},
	}
}

// A call is an authorised request of any transport.
type call struct {
	*Plane
	op       *operation
	who      *principal // nil: the operation needs no key
	params   any        // *P of the action
	raw      []byte     // the parameters as sent, canonical JSON: for the fingerprint
	resource string     // the REST path

	idempotencyKey string // "": none
	correlationID  string
	ip, agent      string
	inBatch        bool // of a JSON-RPC batch: it must not wait
	rpc            bool

	request *http.Request // nil in JSON-RPC
	note    note
}

// A note is what an operation tells the audit row.
type note struct {
	runID   string // as the client knows it
	deduped bool
}

// A principal is whose request it is.
type principal struct {
	id string
	Namespace
	scopes []string
	home   bool // Namespace is Config.Home
}

// has reports whether the principal has a scope. admin has all.
func (k *principal) has(scope string) bool {
	return k != nil && (slices.Contains(k.scopes, scope) || slices.Contains(k.scopes, "admin"))
}

// tenant is the namespace as text.
func (n Namespace) tenant() string { return n.Project + "/" + n.Environment }

// An answer is what an operation answers. Either body is its JSON, or stream writes it.
type answer struct {
	status int         // 0: 200
	body   any         // encoded as JSON; nil: none
	header http.Header // further header fields; nil: none
	stream func(w http.ResponseWriter, r *http.Request)
}

// operations is the table.
func operations() []*operation {
	return slices.Concat(planeOperations(), runOperations(), signalOperations(), deploymentOperations())
}

func planeOperations() []*operation { return nil }
