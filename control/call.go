package control

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weft-go/weft/engine"
)

// A call is an authorised request of any transport.
type call struct {
	*env
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

	request  *http.Request             // nil in JSON-RPC
	conn     *http.ResponseController  // of request
	body     func() ([]byte, *problem) // reads the body of request, if the pipeline does not
	note     note
	audited  bool // the audit row is in the store
	presumes bool // the attempt of mutate may rest on what was so before: its commit judges that
}

// A note is what an operation tells the audit row.
type note struct {
	runID   string // as the client knows it
	deduped bool
}

// perform reads the parameters and runs the operation: from here on all transports are alike.
func (c *call) perform(ctx context.Context, raw []byte) (answer, *problem) {
	params, issues := c.op.do.read(raw)
	if len(issues) > 0 {
		return answer{}, invalid(issues...)
	}
	c.raw, c.params = raw, params
	a, err := c.op.do.run(ctx, c)
	if err != nil {
		if gone(ctx, err) {
			return answer{}, storeUnavailable(err) // nobody will read it
		}
		return answer{}, c.explain(err, c.op.method != http.MethodGet)
	}
	return a, nil
}

// actor returns who acts, and why: the reason that the client gave, or what stands for none.
func (c *call) actor(reason *string, otherwise string) engine.Actor {
	if reason == nil || strings.TrimSpace(*reason) == "" {
		return engine.Actor{Name: c.who.id, Reason: otherwise}
	}
	return engine.Actor{Name: c.who.id, Reason: *reason}
}

// maxReason is the longest reason in bytes (HTTP-61).
const maxReason = 1 << 10

// checkReason adds what is wrong with a reason.
func checkReason(issues []issue, reason *string) []issue {
	switch {
	case reason == nil:
	case len(*reason) > maxReason:
		issues = append(issues, issue{Path: "/reason", Problem: fmt.Sprintf("has more than %d bytes", maxReason)})
	case !utf8.ValidString(*reason):
		issues = append(issues, issue{Path: "/reason", Problem: "is not UTF-8"})
	}
	return issues
}

// noParams are the parameters of an operation that has none.
type noParams struct{}
