package deployments

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/control/internal/operation"
)

// An upload ends if its body is too slow, or too large.
func TestPacedBodies(t *testing.T) {
	const most = 256 << 20
	call := func() *call {
		return &call{&operation.Call{Conn: http.NewResponseController(nil)}, &Deployments{MostArtifact: most}}
	}
	paced := call().paced(t.Context(), strings.NewReader("slow"))
	paced.began = time.Now().Add(-uploadGrace - time.Second)
	if _, err := io.ReadAll(paced); err == nil || !paced.late {
		t.Errorf("a slow body: %v", err)
	}
	if p, ok := paced.explain(io.ErrUnexpectedEOF).(*operation.Problem); !ok || p.Status != 408 {
		t.Errorf("got %v", p)
	}
	large := call().paced(t.Context(), strings.NewReader("x"))
	large.read = most + uploadFrame
	if _, err := io.ReadAll(large); err == nil || !large.over {
		t.Errorf("a large body: %v", err)
	}
	if p, ok := large.explain(io.ErrUnexpectedEOF).(*operation.Problem); !ok || p.Status != 413 {
		t.Errorf("got %v", p)
	}
}
