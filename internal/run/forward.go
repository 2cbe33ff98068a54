package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/signal"
)

// forwardMemory is the least time for which the acceptance of a signal that a run sends is remembered. If a run is stopped
// after the signal was accepted and before it has recorded this, and stays stopped for longer, it sends the signal again.
const forwardMemory = 30 * 24 * time.Hour

// ForwardSignal is engine.Run.ForwardSignal.
func (r *Handle) ForwardSignal(m signal.Message) future.Operation {
	x := r.x
	op := r.startOperation(ofSend, m.Name, nil)
	o, ok := op.(*operation)
	if !ok || o.done {
		return op
	}
	to, ours := x.named(m.WorkflowID)
	m.WorkflowID = to
	id := x.derived("sig_", o.id)
	m.ID, m.ExpiresAfter = &id, max(m.ExpiresAfter, forwardMemory)
	in, refused := x.host.Incoming(x.host.Base, m) // encodes the payload as it is now
	if m.Token != nil {
		refused = fmt.Errorf("%w: a workflow sends a signal to a workflow, and not to a token", weft.ErrInvalid)
	}
	if refused == nil && !ours {
		refused = foreign(to)
	}
	if refused == nil {
		o.digest = payload.Fingerprint(in.Digest.Plain)
	}
	o.which = word(m.WorkflowID)
	o.call = &activity.Call{
		Policy: activity.Policy{Name: m.Name, Retry: activity.Retry{MaxAttempts: -1}, Errors: notSent},
		Run: func(ctx context.Context, _ any) (any, error) {
			err := refused
			if err == nil {
				_, err = x.host.Peers.Send(ctx, in)
			}
			if errors.Is(err, errors.ErrUnsupported) || payload.MatchSentinel(err, notSent) != nil {
				err = activity.Permanent(err)
			}
			return nil, err
		},
	}
	return op
}

// notSent are the permanent errors of a send.
var notSent = []error{weft.ErrNotFound, weft.ErrTerminal, weft.ErrInvalid, signal.ErrConflict}
