package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf16"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/world"
)

// The headers of a message that resumes a run.
const (
	resumeReason  = "x-workflow-resume-reason"
	resumePayload = "x-workflow-resume-payload"
)

// resumeInWorld has the runtime look at a run of the world: it publishes a message that has the reason and the payload in its
// headers (HTTP-61, HTTP-62). What is absent has none (HTTP-63).
func (c *call) resumeInWorld(ctx context.Context, tx storage.Tx, p *resumeParams) (operation.Answer, error) {
	headers := map[string]string{}
	if p.Reason != nil {
		headers[resumeReason] = percentEncoded(*p.Reason)
	}
	if p.Payload != nil {
		headers[resumePayload] = p.ascii
	}
	_, err := c.World.In(tx).Resume(ctx, p.RunID, headers)
	if e, ok := errors.AsType[*world.Error](err); ok {
		switch e.Status {
		case http.StatusNotFound:
			return operation.Answer{}, operation.NoRun(p.RunID)
		case http.StatusConflict:
			return operation.Answer{}, operation.NewProblem(http.StatusConflict, "run_terminal", e.Message+".")
		}
		return operation.Answer{}, operation.Invalid(operation.Issue{Problem: e.Message})
	}
	return operation.Answer{Body: wire.Accepted{Accepted: true}}, err
}

// percentEncoded returns s with each byte as %XX that is no visible character of ASCII, or a percent sign: what
// decodeURIComponent decodes.
func percentEncoded(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c > ' ' && c < 0x7f && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// inASCII returns JSON without blanks, and with other characters than those of ASCII as \uXXXX.
func inASCII(raw json.RawMessage) string {
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		panic(fmt.Sprintf("control: a payload is no JSON: %v", err)) // the body was
	}
	var b strings.Builder
	for _, r := range compact.String() {
		if r < 0x7f {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, "\\u%04x", unit)
		}
	}
	return b.String()
}
