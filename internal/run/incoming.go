package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// Incoming checks a message and encodes it, before anything is written.
func (e *Env) Incoming(ctx context.Context, m signal.Message) (*acceptance.Incoming, error) {
	in := &acceptance.Incoming{WorkflowID: m.WorkflowID, Name: m.Name, Memory: m.ExpiresAfter}
	if m.ID != nil {
		in.ID = *m.ID
	} else {
		in.ID, in.Generated = "sig_"+e.NewID(), true
	}
	if in.Memory <= 0 {
		in.Memory = e.SignalIDRetention
	}
	if m.Token != nil {
		in.Name, in.Resume = "", &acceptance.Resume{TokenHash: keys.TokenHash(*m.Token)}
	}
	p, id, err := e.Codecs.Identify(ctx, m.Payload)
	in.Codec, in.Data, in.Digest = p.Codec, p.Data, id
	if err := e.checkIncoming(in, m, err); err != nil {
		return nil, err
	}
	if m.Token != nil {
		return in, storage.Require(e.Store, "a hook", "conditionalBatch")
	}
	if m.ID != nil {
		return in, storage.Require(e.Store, "a signal with an ID", "conditionalBatch")
	}
	return in, nil
}

// FromOutside is Incoming for a message that comes from outside of runs. It also checks, once for
// each type, that the payload is decoded as it was.
func (e *Env) FromOutside(ctx context.Context, m signal.Message) (*acceptance.Incoming, error) {
	in, err := e.Incoming(ctx, m)
	if err != nil {
		return nil, err
	}
	if err := e.Codecs.Returns(ctx, m.Payload, payload.Payload{Codec: in.Codec, Data: in.Data}); err != nil {
		return nil, fmt.Errorf("%w: payload of signal %q: %w", weft.ErrInvalid, m.Name, err)
	}
	return in, nil
}

// checkIncoming validates in: first the sizes, then that no name is empty, then that names
// are UTF-8 and the payload was encodable.
func (e *Env) checkIncoming(in *acceptance.Incoming, m signal.Message, encoding error) error {
	type name struct {
		what, s string
		most    int
	}
	names := []name{
		{"workflow id", in.WorkflowID, keys.MaxID},
		{"signal name", in.Name, keys.MaxName},
		{"signal id", in.ID, keys.MaxSignalID},
	}
	if m.Token != nil { // the hook that has the token says of which workflow it is
		names = names[2:]
		if err := CheckToken(*m.Token, MaxFullToken); err != nil {
			return err
		}
	}
	for _, n := range names {
		if len(n.s) > n.most {
			return payload.CheckName(n.what, n.s, n.most)
		}
	}
	if errors.Is(encoding, payload.ErrTooLarge) {
		return fmt.Errorf("%w: payload of signal %.40q: %w", weft.ErrInvalid, m.Name, encoding)
	}
	if len(in.Data) > e.MaxPayload {
		return payload.Invalid("payload of signal", m.Name, fmt.Sprintf("has %d bytes, at most %d", len(in.Data), e.MaxPayload))
	}
	for _, n := range names {
		if n.s == "" {
			return payload.Invalid(n.what, n.s, "is empty")
		}
	}
	for _, n := range names {
		if !utf8.ValidString(n.s) {
			return payload.Invalid(n.what, n.s, "is not UTF-8")
		}
	}
	if encoding != nil {
		return fmt.Errorf("%w: payload of signal %q: %w", weft.ErrInvalid, m.Name, encoding)
	}
	if strings.HasPrefix(in.Name, signal.HookPrefix) {
		return payload.Invalid("signal name", in.Name, "belongs to a hook, which only its token can resume")
	}
	return nil
}

// An Address is what an acceptance depends on besides its own records: the workflow and its counter, as last known.
type Address struct {
	Workflow *journal.Workflow
	Counted  []byte // nil: no signal was accepted yet
}
