package operation

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/weft-go/weft/engine"
)

// An engine that closes in the middle of a write may have made it. What a repetition would do twice is not
// repeated, unless it has an idempotency key.
func TestWhatMayHaveTakenEffect(t *testing.T) {
	for _, c := range []struct {
		params any
		key    string
		write  bool
		code   string
		retry  string
	}{
		{nil, "", true, "outcome_unknown", SameKey},
		{nil, "", false, "closing", SameKey},
		{twiceLike{"Look first."}, "", true, "outcome_unknown", never},
		{twiceLike{"Look first."}, "k", true, "outcome_unknown", SameKey},
		{twiceLike{}, "", true, "outcome_unknown", SameKey},
	} {
		call := &Call{Op: &Operation{Name: "an.operation"}, params: c.params, IdempotencyKey: c.key}
		p := call.explain(fmt.Errorf("purge: %w", engine.ErrClosed), c.write)
		if p.Status != 503 || p.Code != c.code || p.Retry != c.retry || p.RetryAfter == 0 || c.write && p.Recovery == "" {
			t.Errorf("%v, key %q, write %v: %+v", c.params, c.key, c.write, p)
		}
	}
}

// Of a change whose client has gone, it is not known what became of it. A read has changed nothing.
func TestAClientThatHasGone(t *testing.T) {
	for method, code := range map[string]string{http.MethodPost: "outcome_unknown", http.MethodDelete: "outcome_unknown", http.MethodGet: "store_unavailable"} {
		ctx, leave := context.WithCancel(t.Context())
		c := &Call{Op: &Operation{Name: "an.operation", Method: method, Do: Act(func(ctx context.Context, _ *Call, _ *NoParams) (Answer, error) {
			leave()
			return Answer{}, fmt.Errorf("commit: %w", ctx.Err())
		})}}
		if _, p := c.Perform(ctx, []byte("{}")); p == nil || p.Code != code || !Gone(ctx, p.Cause) {
			t.Errorf("%s: %+v, want %s", method, p, code)
		}
	}
}

// twiceLike are parameters with which a repetition would be a second effect if instead says what to do.
type twiceLike struct{ instead string }

func (p twiceLike) InsteadOfAgain() string { return p.instead }
