package control

import (
	"context"
	"net/http"
)

// laterOperations are those of streams, which this release does not have. Their
// keys and scopes are checked all the same.
func laterOperations() []*operation {
	return []*operation{
		{name: "runs.stream", method: "GET", path: "/v1/runs/{runId}/streams/{name}", scopes: []string{scopeRunsRead}, do: act(later[streamParams]("streams"))},
	}
}

type streamParams struct {
	RunID string `json:"runId" in:"path"`
	Name  string `json:"name" in:"path"`
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
