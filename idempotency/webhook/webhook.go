// Package webhook receives events that a provider delivers by HTTP, and has each of them take effect
// once, however often it is delivered.
//
// New returns the handler of one provider and one tenant. It verifies the signature, has Config.Event
// read the event, and calls Effect.Do with the key
//
//	Key{Tenant, SourceType: Provider, SourceID: Event.ID, Revision: Event.Version, Action: Event.Action}
//
// The provider stops when it gets a status of 2xx, and delivers again after any other:
//
//   - 200 {"effect_id", "decision"}: the decision is new, duplicate, failed or stale. It is durable.
//   - 400: it is no event, or no version is known where Config.Compare needs one. Nothing was written.
//   - 401: the signature is wrong. The store was not asked.
//   - 409: the event's ID was used for other data (conflict). The answer does not show which.
//   - 413: the body is larger than Config.MaxBody.
//   - 503 with Retry-After: another delivery is in progress, the outcome is indeterminate, nothing
//     happened (released), or the store is unavailable.
//
// Errors are application/problem+json (RFC 9457). Those of the ledger have effect_id and decision too. Run is not
// cancelled when the provider hangs up: its Timeout ends it.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/weft-go/weft/idempotency"
)

// Defaults of a Config, and of its Effect.
const (
	DefaultMaxBody      = 1 << 20            // bytes
	DefaultRetryHorizon = 7 * 24 * time.Hour // for how long providers deliver again
)

// An Event is what Config.Event reads from a delivery. ID, Version and Action are parts of the key:
// they have the limits of SourceID, Revision and Action there. All deliveries of one event have the
// same ones.
type Event struct {
	ID      string // the provider's; required
	Version string // of the event or of what it is about; may be empty
	Action  string // such as "paid"; empty: the Effect's Name

	// Source is what the event is about: with Config.Compare, the events of one Source take effect one
	// at a time, and none after a newer one. Then it is required. At most 255 bytes.
	Source string

	// Sequence orders the events of one Source. Empty: Version does.
	Sequence string
}

// A Config configures a handler. Ledger, Provider, Signature, Event and Effect are required.
type Config[In, Out any] struct {
	Ledger *idempotency.Ledger

	// Provider is the SourceType of the keys. It never changes. At most 200 bytes of UTF-8.
	Provider string

	// Tenant is whose events these are. A host of several tenants makes a handler for each, with that
	// tenant's own secret: only the signature says whose event it is. At most 100 bytes of UTF-8.
	Tenant string

	// Signature verifies a delivery. See Standard.
	Signature Signature

	// Event reads an event that was signed. An error is logged, and answered with 400. What belongs to a
	// delivery, such as its number or its time, must not be in the event or in In: the deliveries of one
	// event are compared.
	Event func(signed http.Header, body []byte) (Event, In, error)

	// Effect is what an event makes happen. A Retention of zero is here that of the Ledger's policies for
	// webhooks, 14 days if they say nothing, and a RetryHorizon of zero is DefaultRetryHorizon. Its Wait is
	// ignored: a delivery does not wait for another one.
	Effect *idempotency.Effect[In, Out]

	// Compare, if not nil, orders the events of one Source by Sequence or Version. It is
	// idempotency.CompareInt, idempotency.CompareTime, or your own. Then Effect.Order must be nil.
	Compare func(a, b string) (int, error)

	// Ties says that two events of equal sequences both take effect. Otherwise the second one is a
	// conflict. Set it with idempotency.CompareTime.
	Ties bool

	// Receipt, if not nil, loads the result of an effect that happened, and whose result is not in the
	// ledger's record: from the tables that the effect wrote, for example. If it returns an error,
	// the answer is 503, and the provider delivers again. Its context ends with the request, and after
	// the Timeout of the Effect.
	Receipt func(ctx context.Context, e Event) (Out, error)

	// StaleStatus is the status for stale events: 200, the default, or 409.
	StaleStatus int

	// Status, if not nil, chooses the status after an error with which Run has released the key: 400 to
	// 599. Anything else is 503.
	Status func(err error) int

	// MaxBody is the largest body in bytes. Zero is DefaultMaxBody.
	MaxBody int64

	// Logger gets the reasons of answers that are errors. The default is slog.Default().
	Logger *slog.Logger
}

// New returns a handler. The error joins a *idempotency.ConfigError for each problem.
func New[In, Out any](c Config[In, Out]) (http.Handler, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	c.Effect = c.effect()
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	c.StaleStatus = cmp.Or(c.StaleStatus, http.StatusOK)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return &handler[In, Out]{c}, nil
}

// effect returns a copy of the Effect with the defaults of webhooks.
func (c Config[In, Out]) effect() *idempotency.Effect[In, Out] {
	e := *c.Effect
	e.Wait = -1
	e.Retention = cmp.Or(e.Retention, c.Ledger.Policies().Webhook())
	e.RetryHorizon = cmp.Or(e.RetryHorizon, DefaultRetryHorizon)
	return &e
}

func (c Config[In, Out]) check() error {
	var errs []error
	bad := func(field, problem string) {
		errs = append(errs, &idempotency.ConfigError{Field: "webhook.Config." + field, Problem: problem})
	}
	if c.Ledger == nil {
		bad("Ledger", "is nil")
	}
	// The other parts of a key come with the events.
	if err := (idempotency.Key{Tenant: c.Tenant, SourceType: c.Provider, SourceID: "any"}).Check(); err != nil {
		bad("Provider or Tenant", "cannot be part of a key: "+err.Error())
	}
	if c.Signature == nil {
		bad("Signature", "is nil")
	}
	if c.Event == nil {
		bad("Event", "is nil")
	}
	if c.StaleStatus != 0 && c.StaleStatus != http.StatusOK && c.StaleStatus != http.StatusConflict {
		bad("StaleStatus", fmt.Sprintf("is %d, and not 200 or 409", c.StaleStatus))
	}
	if c.MaxBody < 0 {
		bad("MaxBody", "is negative")
	}
	if c.Ties && c.Compare == nil {
		bad("Ties", "is set, and Compare is nil")
	}
	if c.Effect == nil {
		bad("Effect", "is nil")
	} else if c.Compare != nil && c.Effect.Order != nil {
		bad("Compare", "is set, and Effect.Order too")
	}
	if c.Effect != nil && c.Ledger != nil {
		e, lease := c.effect(), c.Ledger.Lease()
		if e.Retention > 0 && e.Retention <= lease {
			bad("Effect.Retention", fmt.Sprintf("is %v, and must be longer than the Ledger's Lease of %v", e.Retention, lease))
		}
		errs = append(errs, e.Check())
	}
	return errors.Join(errs...)
}

type handler[In, Out any] struct{ Config[In, Out] }

func (h *handler[In, Out]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.answer(w, r).write(w)
}

// answer handles one delivery.
func (h *handler[In, Out]) answer(w http.ResponseWriter, r *http.Request) answer {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.MaxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return refused(http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body is larger than %d bytes", h.MaxBody))
	} else if err != nil {
		return refused(http.StatusBadRequest, "invalid_event", "the body could not be read")
	}
	ctx := r.Context()
	signed, err := h.Signature(r.Header, body)
	if err != nil {
		h.log(ctx, "the signature is wrong", err)
		return refused(http.StatusUnauthorized, "signature_invalid", "the signature is missing or wrong")
	}
	e, in, err := h.Event(signed, body)
	if err != nil {
		h.log(ctx, "this is no event", err)
		return refused(http.StatusBadRequest, "invalid_event", "the body is no event that is known here")
	}
	return h.do(ctx, e, in)
}

// sequence returns what orders e among the events of its source.
func (e Event) sequence() string { return cmp.Or(e.Sequence, e.Version) }

// do makes the effect happen once for e.
func (h *handler[In, Out]) do(ctx context.Context, e Event, in In) answer {
	effect := *h.Effect
	if h.Compare != nil {
		effect.Order = &idempotency.Order[In]{
			Source:  func(In) string { return e.Source },
			Version: func(In) string { return e.sequence() },
			Compare: h.Compare,
			Ties:    h.Ties,
		}
	}
	k := idempotency.Key{Tenant: h.Tenant, SourceType: h.Provider, SourceID: e.ID, Revision: e.Version, Action: e.Action}
	// Run, and what becomes of it, do not depend on a provider that hangs up.
	r, err := effect.Do(context.WithoutCancel(ctx), h.Ledger, k, in)
	sealed := r.Decision == idempotency.DecidedNew || r.Decision == idempotency.DecidedDuplicate
	if sealed && errors.Is(err, idempotency.ErrResultUnavailable) {
		err = h.load(ctx, e)
	}
	a := h.answerTo(r.Decision, err)
	a.outcome = &outcome{r.EffectID, r.Decision}
	if a.Status >= http.StatusBadRequest {
		h.log(ctx, string(r.Decision), err)
	}
	return a
}

// load has Receipt load a result that is not in the record. Without it, the effect id is the answer.
func (h *handler[In, Out]) load(ctx context.Context, e Event) error {
	if h.Receipt == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(h.Effect.Timeout, idempotency.DefaultTimeout))
	defer cancel()
	_, err := h.Receipt(ctx, e)
	return err
}

func (h *handler[In, Out]) log(ctx context.Context, reason string, err error) {
	h.Logger.WarnContext(ctx, "webhook: not accepted", "source_type", h.Provider, "reason", reason, "error", err)
}
