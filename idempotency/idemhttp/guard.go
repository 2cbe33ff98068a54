package idemhttp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync/atomic"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/canon"
)

// A guard is what New makes, for any number of handlers.
type guard struct {
	Config
	exempt   exemptions
	required []string // headers, beside the key
	conflict idempotency.ConflictPolicy
	effect   *idempotency.Effect[request, Response]
}

func (g *guard) wrap(next http.Handler) http.Handler {
	if next == nil {
		panic("idemhttp: the handler to guard is nil")
	}
	return &guarded{g, next}
}

// A guarded is a handler behind its guard.
type guarded struct {
	*guard
	next http.Handler
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if safe(r.Method) || g.exempt.has(r) {
		g.pass(w, r)
		return
	}
	to := routeOf(g.next, r)
	if to.own != nil {
		to.own.ServeHTTP(w, r)
		return
	}
	r.Pattern = to.pattern // as the ServeMux does, for middleware that logs it
	key, x, p := g.read(w, r, to.name)
	if p == nil {
		p = g.do(w, key, x)
	}
	if p != nil {
		g.log(r, p)
		p.answer(w.Header()).sendReleased(r.Context(), w)
	}
}

// pass serves a request that needs no key. If there is a guard around this one, the request may be a part of what that guards.
// So NoEffect must not mark that as a whole: a safe request has no exchange, and an exempt one, which may be the whole, has its own.
func (g *guarded) pass(w http.ResponseWriter, r *http.Request) {
	if exchangeFrom(r.Context()) == nil {
		g.next.ServeHTTP(w, r)
		return
	}
	serve := func(w http.ResponseWriter, x *exchange) {
		q := r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
		g.next.ServeHTTP(w, q)
		r.Pattern = q.Pattern // for middleware that logs it
	}
	if safe(r.Method) {
		serve(w, nil)
		return
	}
	x, b := &exchange{guarded: g}, newBuffer(w)
	serve(b, x)
	silent := b.status == 0 && r.Context().Err() != nil
	switch a, noEffect := x.answered(b); {
	case noEffect:
		a.sendReleased(r.Context(), w)
	case !silent: // otherwise the guard around it answers that it took too long
		a.send(w)
	}
}

// read checks all that can be checked without the ledger.
func (g *guarded) read(w http.ResponseWriter, r *http.Request, name string) (idempotency.Key, *exchange, *problem) {
	refuse := func(p *problem) (idempotency.Key, *exchange, *problem) { return idempotency.Key{}, nil, p }
	tenant, err := g.Tenant(r)
	if err != nil || tenant == "" {
		return refuse(newProblem(http.StatusUnauthorized, "unauthorized", never, "It is unknown who sends the request."))
	}
	body, p := readBody(w, r, g.MaxBody)
	if p != nil {
		return refuse(p)
	}
	id, p := readKey(r.Header)
	if p != nil {
		return refuse(p)
	}
	if name, ok := firstMissing(r.Header, g.required); ok {
		return refuse(missing(name))
	}
	q, p := newRequest(r, body)
	if p != nil {
		return refuse(p)
	}
	key := idempotency.Key{Tenant: tenant, SourceType: g.endpoint(name, r), SourceID: id, Action: Action}
	return key, &exchange{guarded: g, w: w, r: r, request: q, body: body}, nil
}

// do answers from the ledger, or returns why it does not.
func (g *guarded) do(w http.ResponseWriter, key idempotency.Key, x *exchange) *problem {
	effect := g.effect
	if wait := readWait(x.r.Header); wait > 0 {
		patient := *effect
		patient.Wait = wait
		effect = &patient
	}
	// A client that leaves does not end what it began.
	ctx := context.WithValue(context.WithoutCancel(x.r.Context()), exchangeKey{}, x)
	receipt, err := effect.Do(ctx, g.Ledger, key, x.request)

	if out, ok := errors.AsType[*unsealed](err); ok {
		if out.fate == release {
			out.answer.sendReleased(x.r.Context(), w)
		} else {
			out.answer.send(w)
		}
		return nil
	}
	switch {
	case x.answer != nil && (err == nil || errors.Is(err, idempotency.ErrResultUnavailable)):
		x.answer.send(w)
		return nil
	case errors.Is(err, canon.ErrInvalidJSON): // all was checked, but that the stored request has a level more than the body
		return newProblem(http.StatusBadRequest, "invalid_json", never, "The body has too many levels.")
	case errors.Is(err, idempotency.ErrInvalid): // what the client sent was checked
		return internal(err)
	case err != nil:
		return problemOf(err, g.conflict)
	case receipt.Result.Status < 200 || receipt.Result.Status > 999:
		return problemOf(&idempotency.ResultUnavailableError{EffectID: receipt.EffectID}, g.conflict)
	}
	receipt.Result.replay(w)
	return nil
}

// log tells the host what the client does not see.
func (g *guard) log(r *http.Request, p *problem) {
	if p.cause != nil {
		g.Logger.ErrorContext(r.Context(), "idemhttp: a request was not answered by its handler", "method", r.Method, "path", r.URL.Path, "code", p.Code, "error", p.cause)
	}
}

// An exchange is one request on its way to the handler.
type exchange struct {
	*guarded
	w       http.ResponseWriter
	r       *http.Request
	request request
	body    []byte

	noEffect atomic.Bool            // the handler said so
	mark     atomic.Pointer[string] // of what guards inside the handler refuse or release; nil: nothing yet
	answer   *answer                // the handler's, if it is sealed
}

type exchangeKey struct{}

func exchangeFrom(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// NoEffect says, in a guarded handler, that nothing has happened, whatever the status of the answer. The
// client gets the answer, it is not stored, and the next request with the key runs. Call it when the answer
// is decided: a panic after it is a panic all the same. With another context it does nothing.
//
// Called for a request that a guarded handler has sent through another guard, also an exempt one, it counts for the
// handler's own request only if the answer is passed on, with its header and status, and called for a GET, HEAD,
// OPTIONS or TRACE never.
func NoEffect(ctx context.Context) {
	if x := exchangeFrom(ctx); x != nil {
		x.noEffect.Store(true)
	}
}

// releasedHeader is a header field of an answer that a guard does not store, if there is a guard around it, which takes it out. It has
// the status, because a handler may merge header fields of such an answer into its own.
const releasedHeader = "Weft-Released"

func (a *answer) released(mark string) string { return fmt.Sprint(a.status, " ", mark) }

// sendReleased sends an answer that is not stored. If it becomes the answer of a handler with a guard around it, that one
// does not store it either. The handler may also have called this guard for a part of its work, and answer for itself.
func (a *answer) sendReleased(ctx context.Context, w http.ResponseWriter) {
	if outer := exchangeFrom(ctx); outer != nil {
		mark := rand.Text()
		if !outer.mark.CompareAndSwap(nil, &mark) {
			mark = *outer.mark.Load()
		}
		a.header.Set(releasedHeader, a.released(mark))
	}
	a.send(w)
}

// answered returns the handler's answer, and whether nothing has happened: the handler said so, or it passes on, with its
// header and status, what a guard inside has refused or released.
func (x *exchange) answered(b *buffer) (a *answer, noEffect bool) {
	a, noEffect = b.answer(), x.noEffect.Load()
	if mark := x.mark.Load(); mark != nil {
		noEffect = noEffect || a.header.Get(releasedHeader) == a.released(*mark)
		a.header.Del(releasedHeader)
	}
	return a, noEffect
}

// unsealed is the error of a handler whose answer its client gets, although it is not stored.
type unsealed struct {
	answer *answer
	fate   fate
}

func (e *unsealed) Error() string { return fmt.Sprintf("the handler answered %d", e.answer.status) }

// runHandler is the Run of every guard's effect.
func runHandler(ctx context.Context, _ request) (Response, error) {
	return exchangeFrom(ctx).run(ctx)
}

func (x *exchange) run(ctx context.Context) (Response, error) {
	b := newBuffer(x.w)
	o := ending{panicked: x.call(ctx, b)}
	o.late = ctx.Err() != nil
	o.status = b.status // still 0 if the handler did not set one
	var a *answer
	a, o.noEffect = x.answered(b)
	fate := o.judge(x.ServerErrors)

	if p := o.problem(fate); p != nil {
		a = p.answer(x.w.Header())
	}
	switch fate {
	case release:
		return Response{}, activity.NoEffect(&unsealed{a, fate})
	case doubt:
		return Response{}, &unsealed{a, fate}
	}
	x.answer = a
	return a.response(x.w.Header()), nil
}

// call calls the handler, and says whether it panicked.
func (x *exchange) call(ctx context.Context, b *buffer) (panicked bool) {
	defer func() {
		if value := recover(); value != nil {
			panicked = true
			if value != http.ErrAbortHandler {
				x.Logger.ErrorContext(ctx, "idemhttp: a handler panicked", "method", x.r.Method, "path", x.r.URL.Path, "panic", value, "stack", string(debug.Stack()))
			}
		}
	}()
	x.next.ServeHTTP(b, withBody(x.r.WithContext(ctx), x.body))
	return false
}

// A fate is what becomes of a key after its handler.
type fate uint8

const (
	seal    fate = iota // the answer is stored
	release             // nothing has happened
	doubt               // nobody knows
)

// An ending is how a call of a handler ended.
type ending struct {
	status   int  // 0: it did not set one
	panicked bool // before or after it answered
	late     bool // its context had ended
	noEffect bool // it said so, or a guard inside did
}

// judge decides about an answer. One that comes late only counts if it says that the handler succeeded: a handler
// may take the end of its context for a mistake of the client, or return without an answer.
func (o ending) judge(policy ServerErrors) fate {
	switch {
	case o.panicked:
		return policy.fate()
	case o.noEffect:
		return release
	case o.status >= 200 && o.status < 400:
		return seal
	case o.late:
		return policy.fate()
	case o.status == 0: // which is 200
		return seal
	case o.status >= 400 && o.status < 500:
		switch o.status {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
			return release
		}
		return seal
	}
	return policy.fate()
}

// fate is that of a server's error.
func (s ServerErrors) fate() fate {
	switch s {
	case SealServerErrors:
		return seal
	case ReleaseServerErrors:
		return release
	}
	return doubt
}

// problem is the answer in place of the handler's: after a panic, and of one that is late and tells of no error
// of the server. It is nil if the handler's counts.
func (o ending) problem(f fate) *problem {
	status, text := http.StatusInternalServerError, "The request's handler broke off."
	switch {
	case o.panicked:
	case o.late && !o.noEffect && (o.status == 0 || o.status >= 400 && o.status < 500):
		status, text = http.StatusServiceUnavailable, "The request took too long."
	default:
		return nil
	}
	switch f {
	case release:
		return newProblem(status, "idempotency_unavailable", sameKey, text).after(0)
	case doubt:
		return newProblem(status, "idempotency_indeterminate", sameKey, text+" It is unknown whether it has taken effect. It is not repeated.")
	}
	return newProblem(status, "internal", never, text)
}
