package control

import (
	"context"
	"encoding/json"
	"net/http"
)

// laterOperations are those of streams and the world, which this release does not have. Their
// keys and scopes are checked all the same.
func laterOperations() []*operation {
	return []*operation{
		{name: "runs.stream", method: "GET", path: "/v1/runs/{runId}/streams/{name}", scopes: []string{scopeRunsRead}, do: act(later[streamParams]("streams"))},
		{name: "world.queue.publish", method: "POST", path: "/v1/queue/publish", scopes: []string{scopeWorldProxy}, home: true, do: act(later[publishParams]("a world"))},
		{name: "world.call", method: "POST", path: "/v1/world/{area}/{action}", scopes: []string{scopeWorldProxy}, home: true, restOnly: true, unread: true, do: act(later[worldParams]("a world"))},
	}
}

type streamParams struct {
	RunID string `json:"runId" in:"path"`
	Name  string `json:"name" in:"path"`
}

type publishParams struct {
	QueueName string          `json:"queueName"`
	Message   json.RawMessage `json:"message"`
	Opts      *publishOptions `json:"opts,omitempty"`
}

func (p *publishParams) check() []issue {
	if p.Message == nil {
		return []issue{{"/message", "is required"}}
	}
	return nil
}

type publishOptions struct {
	DeploymentID   *string `json:"deploymentId,omitempty"`
	IdempotencyKey *string `json:"idempotencyKey,omitempty"`
}

type worldParams struct {
	Area   string `json:"area" in:"path"`
	Action string `json:"action" in:"path"`
}

// later returns the function of an operation that needs something which this release does not have.
func later[P any](what string) func(context.Context, *call, *P) (answer, error) {
	return func(context.Context, *call, *P) (answer, error) {
		return answer{}, notConfigured("This service does not have " + what + ".")
	}
}

// notConfigured is the problem of what this service is not set up for.
func notConfigured(message string) *problem {
	return newProblem(http.StatusNotImplemented, "not_configured", message)
}
