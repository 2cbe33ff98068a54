package operation

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

// A Call is an authorised request of any transport.
type Call struct {
	*Env
	Op       *Operation
	Who      *Principal // nil: the operation needs no key
	params   any        // *P of the action
	Raw      []byte     // the parameters as sent, canonical JSON: for the fingerprint
	Resource string     // the REST path

	IdempotencyKey string // "": none
	CorrelationID  string
	From           netip.Addr
	Agent          string
	Behalf         string        // the run on whose behalf it is made, by its client
	Wait           time.Duration // the longest that it may wait; 0 in a JSON-RPC batch

	Request  *http.Request             // nil in JSON-RPC
	Conn     *http.ResponseController  // of Request
	Body     func() ([]byte, *Problem) // reads the body of Request, if the operation has Unread
	Note     Note
	Audited  bool // the audit row is in the store
	Presumes bool // the attempt of Mutate may rest on what was so before: its commit judges that
}

// A Note is what an operation tells the audit row.
type Note struct {
	RunID   string // as the client knows it
	Deduped bool
}

// Perform reads the parameters and runs the operation: from here on all transports are alike.
func (c *Call) Perform(ctx context.Context, raw []byte) (Answer, *Problem) {
	params, issues := c.Op.Do.read(raw)
	if len(issues) > 0 {
		return Answer{}, Invalid(issues...)
	}
	c.Raw, c.params = raw, params
	a, err := c.Op.Do.run(ctx, c)
	if err != nil {
		return Answer{}, c.explain(err, c.Op.Method != http.MethodGet)
	}
	return a, nil
}

// Actor returns who acts, and why: the reason that the client gave, or what stands for none.
func (c *Call) Actor(reason *string, otherwise string) engine.Actor {
	if reason == nil || strings.TrimSpace(*reason) == "" {
		return engine.Actor{Name: c.Who.ID, Reason: otherwise}
	}
	return engine.Actor{Name: c.Who.ID, Reason: *reason}
}

// MaxReason is the longest reason in bytes (HTTP-61).
const MaxReason = 1 << 10

// CheckReason adds what is wrong with a reason.
func CheckReason(issues []Issue, reason *string) []Issue {
	switch {
	case reason == nil:
	case len(*reason) > MaxReason:
		issues = append(issues, Issue{Path: "/reason", Problem: fmt.Sprintf("has more than %d bytes", MaxReason)})
	case !utf8.ValidString(*reason):
		issues = append(issues, Issue{Path: "/reason", Problem: "is not UTF-8"})
	}
	return issues
}

// CheckRequiredReason is CheckReason of a reason that must be given.
func CheckRequiredReason(issues []Issue, reason string) []Issue {
	if strings.TrimSpace(reason) == "" {
		issues = append(issues, Issue{Path: "/reason", Problem: isRequired})
	}
	return CheckReason(issues, &reason)
}

// NoParams are the parameters of an operation that has none.
type NoParams struct{}
