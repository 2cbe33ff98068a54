package control

import (
	"context"
	"net/http"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/internal/audit"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/internal/records"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

func auditOperations() []*operation.Operation {
	return []*operation.Operation{
		{Name: "audit.list", Method: http.MethodGet, Path: "/v1/audit", Scopes: []string{operation.ScopeAuditRead}, Do: operation.Act(listAudit)},
	}
}

type listAuditParams struct {
	Action string     `json:"action,omitempty" in:"query"`
	Result string     `json:"result,omitempty" in:"query"`
	KeyID  string     `json:"keyId,omitempty" in:"query"`
	RunID  string     `json:"runId,omitempty" in:"query"`
	From   *time.Time `json:"from,omitempty" in:"query"`
	To     *time.Time `json:"to,omitempty" in:"query"`
	operation.Paging
}

var _ operation.Checker = (*listAuditParams)(nil)

func (p *listAuditParams) Check() []operation.Issue {
	issues := p.Paging.Check()
	if p.Result != "" && p.Result != audit.Success && p.Result != audit.Failure {
		issues = append(issues, operation.Issue{Path: "/result", Problem: "must be success or failure"})
	}
	return issues
}

// auditLag is how far ascending readers stay behind, 30 s: rows are written after their time, by processes whose clocks differ by
// almost ten seconds at most.
const auditLag = max(audit.Latest, operation.CommitPatience) - audit.Delay + 10*time.Second

// listAudit lists the audit rows of the caller's namespace.
func listAudit(ctx context.Context, c *operation.Call, p *listAuditParams) (operation.Answer, error) {
	whole := keys.ControlAudits(c.Who.Tenant())
	r, from, to := whole, p.From, p.To
	if p.Ascending() {
		if last := time.Now().Add(-auditLag); to == nil || last.Before(*to) {
			to = &last
		}
	}
	if from != nil {
		r.Start = keys.ControlAudit(c.Who.Tenant(), audit.FirstULID(*from))
	}
	if to != nil {
		r.End = keys.ControlAudit(c.Who.Tenant(), audit.FirstULID(*to))
	}
	if from != nil && to != nil && !from.Before(*to) {
		return operation.Answer{Body: weft.Page[wire.AuditRow]{Next: p.Cursor}}, nil
	}
	// A cursor may be of another process, whose clock is ahead: there the list ended later.
	list := operation.Listing{Range: r, Paging: p.Paging, Whole: &whole}
	page, err := operation.PageOf(ctx, c.Store, list, func(e storage.Entry) (found wire.AuditRow, ok bool, err error) {
		row := &audit.Row{}
		switch _, err := record.Open(e.Key, e.Value, records.Version, row); {
		case record.Damaged(err): // it must not keep a reader from all that comes then
			c.Log.Error("an audit row cannot be read; it is passed over", "key", string(e.Key), "error", err)
			return found, false, nil
		case err != nil:
			return found, false, err
		}
		if p.Action != "" && row.Action != p.Action || p.Result != "" && row.Result != p.Result ||
			p.KeyID != "" && row.KeyID != p.KeyID || p.RunID != "" && row.RunID != p.RunID {
			return found, false, nil
		}
		return rowOf(row), true, nil
	})
	return operation.Answer{Body: page}, err
}

// rowOf returns a row as clients see it.
func rowOf(row *audit.Row) wire.AuditRow {
	return wire.AuditRow{
		ID: row.ID, KeyID: row.KeyID, Project: row.Project, Environment: row.Environment,
		Action: row.Action, Resource: row.Resource, Result: row.Result, IP: row.IP, UserAgent: row.UserAgent,
		CreatedAt: records.Time(row.CreatedAt),
		Metadata: wire.AuditMetadata{
			Lane: row.Lane, Deduped: row.Deduped, CorrelationID: row.CorrelationID, RunID: row.RunID,
			IdempotencyKey: row.IdempotencyKey, Status: row.Status, Code: row.Code, Reason: row.Reason, Count: row.Count,
		},
	}
}
