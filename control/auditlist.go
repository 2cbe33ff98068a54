package control

import (
	"context"
	"net/http"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

func auditOperations() []*operation {
	return []*operation{
		{name: "audit.list", method: http.MethodGet, path: "/v1/audit", scopes: []string{scopeAuditRead}, do: act(listAudit)},
	}
}

type listAuditParams struct {
	Action string     `json:"action,omitempty" in:"query"`
	Result string     `json:"result,omitempty" in:"query"`
	KeyID  string     `json:"keyId,omitempty" in:"query"`
	RunID  string     `json:"runId,omitempty" in:"query"`
	From   *time.Time `json:"from,omitempty" in:"query"`
	To     *time.Time `json:"to,omitempty" in:"query"`
	paging
}

func (p *listAuditParams) Check() []issue {
	issues := p.paging.Check()
	if p.Result != "" && p.Result != resultSuccess && p.Result != resultFailure {
		issues = append(issues, issue{Path: "/result", Problem: "must be success or failure"})
	}
	return issues
}

// auditLag is how far ascending readers stay behind: rows are written up to auditDelay after their
// time, by processes whose clocks differ.
const auditLag = 5 * time.Second

// listAudit lists the audit rows of the caller's namespace.
func listAudit(ctx context.Context, c *call, p *listAuditParams) (answer, error) {
	r := keys.ControlAudits(c.who.tenant())
	from, to := p.From, p.To
	if p.ascending() {
		if last := time.Now().Add(-auditLag); to == nil || last.Before(*to) {
			to = &last
		}
	}
	if from != nil {
		r.Start = keys.ControlAudit(c.who.tenant(), firstULID(*from))
	}
	if to != nil {
		r.End = keys.ControlAudit(c.who.tenant(), firstULID(*to))
	}
	page := weft.Page[wire.AuditRow]{Next: p.Cursor}
	if from != nil && to != nil && !from.Before(*to) {
		return answer{body: page}, nil
	}
	// A cursor must be in the list as a whole: its end moves on while somebody reads ascending.
	list := listing{Range: r, paging: p.paging}
	err := list.walk(ctx, c.store, func(e storage.Entry) (bool, error) {
		row := &auditRow{}
		if _, err := record.Open(e.Key, e.Value, recordVersion, row); err != nil {
			return false, err
		}
		if p.Action != "" && row.Action != p.Action || p.Result != "" && row.Result != p.Result ||
			p.KeyID != "" && row.KeyID != p.KeyID || p.RunID != "" && row.RunID != p.RunID {
			return false, nil
		}
		page.Data = append(page.Data, row.wire())
		return true, nil
	}, func(next string, more bool) { page.Next, page.HasMore = next, more })
	if err != nil {
		return answer{}, err
	}
	return answer{body: page}, nil
}

func (row *auditRow) wire() wire.AuditRow {
	return wire.AuditRow{
		ID: row.ID, KeyID: row.KeyID, Project: row.Project, Environment: row.Environment,
		Action: row.Action, Resource: row.Resource, Result: row.Result, IP: row.IP, UserAgent: row.UserAgent,
		CreatedAt: micro(row.CreatedAt),
		Metadata: wire.AuditMetadata{
			Lane: row.Lane, Deduped: row.Deduped, CorrelationID: row.CorrelationID, RunID: row.RunID,
			IdempotencyKey: row.IdempotencyKey, Status: row.Status, Code: row.Code, Reason: row.Reason, Count: row.Count,
		},
	}
}
