package control

import (
	"net/http"
	"strings"
)

// Scopes of keys.
const (
	scopeAdmin        = "admin" // all of them, within its namespace
	scopeTriggerWrite = "trigger:write"
	scopeRunsRead     = "runs:read"
	scopeRunsWrite    = "runs:write"
	scopeRunsOperate  = "runs:operate"
	scopeSignalsWrite = "signals:write"
	scopeDeployRead   = "deploy:read"
	scopeDeployWrite  = "deploy:write"
	scopeAuditRead    = "audit:read"
	scopeOpsRead      = "ops:read"
	scopeWorldProxy   = "world:proxy"
)

// allScopes are all of them, sorted.
var allScopes = []string{
	scopeAdmin, scopeAuditRead, scopeDeployRead, scopeDeployWrite, scopeOpsRead, scopeRunsOperate,
	scopeRunsRead, scopeRunsWrite, scopeSignalsWrite, scopeTriggerWrite, scopeWorldProxy,
}

// permits returns a problem unless a principal may call an operation.
func (o *operation) permits(who *principal) *problem {
	if len(o.scopes) == 0 { // nil: no key is needed; none: any key will do
		return nil
	}
	for _, s := range o.scopes {
		if who.has(s) {
			if o.home && !who.home {
				p := newProblem(http.StatusForbidden, "missing_scope", "Only a key of the home namespace may do this")
				p.Required = o.scopes
				p.Recovery = "Use a key of the namespace that Config.Home names."
				return p
			}
			return nil
		}
	}
	return missingScope(o.scopes...)
}

// missingScope is the problem of a key without a scope that is needed: one of these.
func missingScope(required ...string) *problem {
	p := newProblem(http.StatusForbidden, "missing_scope", "Missing required scope: "+strings.Join(required, " or "))
	p.Required = required
	p.Recovery = "Use a key with this scope, or ask an admin for one."
	return p
}
