package operation

import (
	"net/http"
	"strings"
)

// Scopes of keys.
const (
	ScopeAdmin        = "admin" // all of them, within its namespace
	ScopeTriggerWrite = "trigger:write"
	ScopeRunsRead     = "runs:read"
	ScopeRunsWrite    = "runs:write"
	ScopeRunsOperate  = "runs:operate"
	ScopeSignalsWrite = "signals:write"
	ScopeDeployRead   = "deploy:read"
	ScopeDeployWrite  = "deploy:write"
	ScopeAuditRead    = "audit:read"
	ScopeOpsRead      = "ops:read"
	ScopeWorldProxy   = "world:proxy"
)

// AllScopes are all of them, sorted.
var AllScopes = []string{
	ScopeAdmin, ScopeAuditRead, ScopeDeployRead, ScopeDeployWrite, ScopeOpsRead, ScopeRunsOperate,
	ScopeRunsRead, ScopeRunsWrite, ScopeSignalsWrite, ScopeTriggerWrite, ScopeWorldProxy,
}

// Permits returns a problem unless a principal may call an operation.
func (o *Operation) Permits(who *Principal) *Problem {
	if len(o.Scopes) == 0 { // nil: no key is needed; none: any key will do
		return nil
	}
	for _, s := range o.Scopes {
		if who.Has(s) {
			if o.Home && !who.Home {
				p := NewProblem(http.StatusForbidden, "missing_scope", "Only a key of the home namespace may do this")
				p.Required = o.Scopes
				p.Recovery = "Use a key of the namespace that Config.Home names."
				return p
			}
			return nil
		}
	}
	return MissingScope(o.Scopes...)
}

// MissingScope is the problem of a key without a scope that is needed: one of these.
func MissingScope(required ...string) *Problem {
	p := NewProblem(http.StatusForbidden, "missing_scope", "Missing required scope: "+strings.Join(required, " or "))
	p.Required = required
	p.Recovery = "Use a key with this scope, or ask an admin for one."
	return p
}
