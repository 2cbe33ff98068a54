package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"
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
// json.RawMessage, are refused. If *P has a method check() []issue, it is called then.
func act[P any](run func(ctx context.Context, c *call, p *P) (answer, error)) action {
	return action{
		fields: fieldsOf[P](),
		read:   readerOf[P](),
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
	from           netip.Addr
	agent          string
	behalf         string        // the run on whose behalf it is made, by its client
	wait           time.Duration // the longest that it may wait; 0 in a JSON-RPC batch

	exchange *exchange                // nil in JSON-RPC
	request  *http.Request            // nil in JSON-RPC
	conn     *http.ResponseController // of request
	note     note
	audited  bool // the audit row is in the store
	presumes bool // the attempt of mutate may rest on what was so before: its commit judges that
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
	home   bool   // Namespace is Config.Home
	hash   []byte // of the secret it came with
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
	end    func() // frees what the answer holds, whether it was written or not; nil: nothing
}

// code is the status of a.
func (a answer) code() int {
	if a.status == 0 {
		return http.StatusOK
	}
	return a.status
}

// json returns the body, encoded; nil: there is none.
func (a answer) json() (json.RawMessage, error) {
	if a.body == nil {
		return nil, nil
	}
	if raw, ok := a.body.(json.RawMessage); ok {
		return raw, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(a.body); err != nil {
		return nil, fmt.Errorf("control: encode an answer: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
