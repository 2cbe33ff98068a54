package control

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"time"
)

// newAuditRow returns the row of a call that was answered with a status and, if it failed, a code.
func (c *call) newAuditRow(status int, code string) *auditRow {
	now := time.Now()
	row := &auditRow{
		ID: newULID(now), Action: c.op.name, Resource: short(c.resource), Result: resultSuccess,
		IP: address(c.from), UserAgent: short(c.agent), CreatedAt: now.UnixMicro(), Lane: c.op.lane(), Deduped: c.note.deduped,
		CorrelationID: c.correlationID, RunID: short(cmp.Or(c.note.runID, c.behalf)), IdempotencyKey: short(c.idempotencyKey),
		Status: status, Code: code, Reason: short(c.reason()),
	}
	if code != "" {
		row.Result = resultFailure
	}
	if c.who != nil {
		row.KeyID, row.Project, row.Environment = c.who.id, c.who.Project, c.who.Environment
	}
	return row
}

// reason returns what the client gave as the reason, for the audit row. It is "" if there is none, or
// the parameters could not be read.
func (c *call) reason() string {
	if c.op.field("reason") == nil {
		return "" // so the parameters are not decoded once more
	}
	var given struct {
		Reason json.RawMessage `json:"reason"`
	}
	var text string
	if json.Unmarshal(c.raw, &given) != nil || json.Unmarshal(given.Reason, &text) != nil {
		return ""
	}
	return text
}

// audit has the row of a call written. The rows of changes that succeeded are in the store when
// audit returns; mutate has stored its own. So is that of a repetition if the row follows the change:
// the process may have died between the two. If the store does not take one, the answer stays true, and
// the log has it.
func (c *call) audit(ctx context.Context, status int, code string) {
	if c.op.unaudited || c.audited || c.op.batch && code == "" { // each request of a batch has its own row
		return
	}
	row := c.newAuditRow(status, code)
	fold := foldKey{code: code, by: network(c.from).String()}
	if c.who != nil {
		fold.tenant, fold.by = c.who.tenant(), c.who.id
	}
	switch {
	case code != "" && (c.who == nil || c.op.batch), status == http.StatusForbidden, status == http.StatusTooManyRequests:
		c.auditor.refused(fold, row)
	case c.who == nil:
		c.auditor.add(row) // it costs nobody a commit of its own
	case code == "" && c.op.method != http.MethodGet && (!c.note.deduped || c.op.follows):
		if err := c.auditor.commit(context.WithoutCancel(ctx), []*auditRow{row}); err != nil {
			c.log.Error("an audit row is lost: the store did not take it", "operation", row.Action, "correlation", row.CorrelationID, "error", err)
		}
	default:
		c.auditor.add(row)
	}
}

// address is an address as the audit has it.
func address(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.WithZone("").String()
}

// network returns what an address is counted as: a client has a whole /64 of IPv6.
func network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	p, err := a.Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}
