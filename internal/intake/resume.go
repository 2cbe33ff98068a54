package intake

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/signal"
)

// errMoved answers a resume whose hook is not open any more. It was not accepted. Another hook may
// have the token now.
var errMoved = errors.New("engine: hook is not open any more")

// resume sends a signal to the open hook that has a token. See signal.Hook.Resume.
func (e *Intake) resume(ctx context.Context, m signal.Message) (signal.Accepted, error) {
	if m.WorkflowID != "" || m.Start != nil {
		return signal.Accepted{}, fmt.Errorf("%w: resume of hook %s: a message has a Token, or it has a WorkflowID or a Start", weft.ErrInvalid, m.Name)
	}
	in, err := e.FromOutside(ctx, m)
	if err == nil {
		err = e.Refused()
	}
	if err != nil {
		return signal.Accepted{}, err
	}
	for range settle.MostTries {
		a, err := e.resumeOnce(ctx, in)
		if !errors.Is(err, errMoved) && !errors.Is(err, weft.ErrTerminal) {
			return a, err
		}
	}
	return signal.Accepted{}, settle.Contradiction(keys.HookAddress(in.Resume.TokenHash))
}

// resumeOnce answers a resume that was accepted before, or sends it to the hook that has the token
// now. The error is errMoved or weft.ErrTerminal if that hook is not open any more.
func (e *Intake) resumeOnce(ctx context.Context, in *acceptance.Incoming) (signal.Accepted, error) {
	// The hook is read before the answer: if it was closed by then, no answer comes after that.
	hook, err := journal.ReadHookAddress(ctx, e.Store, in.Resume.TokenHash)
	if !in.Generated { // whoever has the token by now
		a, earlier, err := e.earlier(ctx, in)
		if earlier || err != nil {
			e.tellAccepted(a, err)
			return a, resuming(err)
		}
	}
	switch {
	case err != nil:
		return signal.Accepted{}, resuming(err)
	case hook == nil:
		return signal.Accepted{}, noHook{}
	}
	to := *in
	to.WorkflowID, to.Name = hook.WorkflowID, signal.HookPrefix+hook.HookID
	to.Resume = &acceptance.Resume{TokenHash: in.Resume.TokenHash, Address: hook.Raw()}
	a, err := e.Send(ctx, &to)
	if errors.Is(err, weft.ErrNotFound) { // it has ended, and was purged
		err = errMoved
	}
	return a, err
}

// noHook means that no open hook has a token. It is weft.ErrNotFound.
type noHook struct{}

func (noHook) Error() string        { return "engine: no open hook has the token" }
func (noHook) Is(target error) bool { return target == weft.ErrNotFound }

// resuming says what failed.
func resuming(err error) error {
	if err == nil || errors.Is(err, signal.ErrConflict) {
		return err
	}
	return fmt.Errorf("engine: resume of a hook: %w", err)
}

// closed reports whether in resumes a hook that is not open any more. Whoever was refused asks this
// before he looks for an answer: then no answer comes after that, and if there is none, the resume was
// not accepted.
func (e *Intake) closed(ctx context.Context, in *acceptance.Incoming) (bool, error) {
	if in.Resume == nil {
		return false, nil
	}
	hook, err := journal.ReadHookAddress(ctx, e.Store, in.Resume.TokenHash)
	return hook == nil || !bytes.Equal(hook.Raw(), in.Resume.Address), err
}

// together splits a batch: two resumes of one token that know of different hooks are not accepted
// together, because at most one of the hooks is open.
func together(batch []*sending) (now, later []*sending) {
	hooks := map[string][]byte{}
	for _, s := range batch {
		if r := s.in.Resume; r != nil {
			known, ok := hooks[r.TokenHash]
			if ok && !bytes.Equal(known, r.Address) {
				s.look = true
				later = append(later, s)
				continue
			}
			hooks[r.TokenHash] = r.Address
		}
		now = append(now, s)
	}
	return now, later
}
