package operation

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"time"

	"github.com/weft-go/weft/control/internal/audit"
	"github.com/weft-go/weft/internal/ids"
)

// newAuditRow returns the row of a call that was answered with a status and, if it failed, a code.
func (c *Call) newAuditRow(status int, code string) *audit.Row {
	now := time.Now()
	row := &audit.Row{
		ID: ids.ULID(now), Action: c.Op.Name, Resource: audit.Short(c.Resource), Result: audit.Success,
		IP: address(c.From), UserAgent: audit.Short(c.Agent), CreatedAt: now.UnixMicro(), Lane: c.Op.Lane(), Deduped: c.Note.Deduped,
		CorrelationID: c.CorrelationID, RunID: audit.Short(cmp.Or(c.Note.RunID, c.Behalf)), IdempotencyKey: audit.Short(c.IdempotencyKey),
		Status: status, Code: code, Reason: audit.Short(c.reason()),
	}
	if code != "" {
		row.Result = audit.Failure
	}
	if c.Who != nil {
		row.KeyID, row.Project, row.Environment = c.Who.ID, c.Who.Project, c.Who.Environment
	}
	return row
}

// reason returns what the client gave as the reason, for the audit row. It is "" if there is none, or
// the parameters could not be read.
func (c *Call) reason() string {
	if c.Op.Field("reason") == nil {
		return "" // so the parameters are not decoded once more
	}
	var given struct {
		Reason json.RawMessage `json:"reason"`
	}
	var text string
	if json.Unmarshal(c.Raw, &given) != nil || json.Unmarshal(given.Reason, &text) != nil {
		return ""
	}
	return text
}

// Audit has the row of a call written. The rows of changes that succeeded are in the store when
// Audit returns; Mutate has stored its own. So is that of a repetition if the row follows the change:
// the process may have died between the two. If the store does not take one, the answer stays true, and
// the log has it.
func (c *Call) Audit(ctx context.Context, status int, code string) {
	if c.Op.Unaudited || c.Audited || c.Op.Batch && code == "" { // each request of a batch has its own row
		return
	}
	row := c.newAuditRow(status, code)
	fold := audit.FoldKey{Code: code, By: Network(c.From).String()}
	if c.Who != nil {
		fold.Tenant, fold.By = c.Who.Tenant(), c.Who.ID
	}
	switch {
	case code != "" && (c.Who == nil || c.Op.Batch), status == http.StatusForbidden, status == http.StatusTooManyRequests:
		c.Auditor.Refused(fold, row)
	case c.Who == nil:
		c.Auditor.Add(row) // it costs nobody a commit of its own
	case code == "" && c.Op.Method != http.MethodGet && (!c.Note.Deduped || c.Op.Follows):
		if err := c.Auditor.Commit(context.WithoutCancel(ctx), []*audit.Row{row}); err != nil {
			c.Log.Error("an audit row is lost: the store did not take it", "operation", row.Action, "correlation", row.CorrelationID, "error", err)
		}
	default:
		c.Auditor.Add(row)
	}
}

// address is an address as the audit has it.
func address(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.WithZone("").String()
}

// Network returns what an address is counted as: a client has a whole /64 of IPv6.
func Network(a netip.Addr) netip.Addr {
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
