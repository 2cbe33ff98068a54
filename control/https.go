package control

import (
	"net/http"
	"strings"

	"github.com/weft-go/weft/control/internal/forwarded"
	"github.com/weft-go/weft/control/internal/operation"
)

// secure returns a problem if a request did not come by https as it must.
func (p *Plane) secure(r *http.Request, op *operation.Operation, from forwarded.Peer) *operation.Problem {
	bad := operation.NewProblem(http.StatusBadRequest, "https_required", "HTTPS is required")
	switch p.config.HTTPS {
	case HTTPSIfForwarded:
		lines := r.Header["X-Forwarded-Proto"]
		if len(lines) == 0 {
			return nil
		}
		first, _, _ := strings.Cut(lines[0], ",")
		if !strings.EqualFold(strings.Trim(first, " \t"), "https") {
			return bad
		}
	case HTTPSStrict:
		if !from.HTTPS && !op.Unsecured {
			return bad
		}
	}
	return nil
}
