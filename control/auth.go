package control

import (
	"context"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/weft-go/weft/internal/lock"
)

// Scopes of keys.
const (
	scopeAdmin        = "admin" // all of them, within its namespace
	scopeTriggerWrite = "trigger:write"
	scopeRunsRead     = "runs:read"
	scopeRunsWrite    = "runs:write"
	scopeRunsOperate  = "runs:operate"
	scopeSignalsWrite = "signals:write"
	scopeDeployRead   = "deploy:read"
	scopeDeployWrite  = "deploy:write"
	scopeAuditRead    = "audit:read"
	scopeOpsRead      = "ops:read"
	scopeWorldProxy   = "world:proxy"
)

var allScopes = []string{
	scopeAdmin, scopeAuditRead, scopeDeployRead, scopeDeployWrite, scopeOpsRead, scopeRunsOperate,
	scopeRunsRead, scopeRunsWrite, scopeSignalsWrite, scopeTriggerWrite, scopeWorldProxy,
}

const maxToken = 1024 // bytes; a longer one is unknown

// token returns the token of a request. The problem is nil if there is one.
func token(h http.Header) (string, *problem) {
	values := h["Authorization"]
	if len(values) > 1 {
		return "", unknownKey()
	}
	if len(values) == 0 {
		return "", missingKey()
	}
	scheme, t, _ := strings.Cut(values[0], " ")
	if t = strings.Trim(t, " "); !strings.EqualFold(scheme, "Bearer") || t == "" {
		return "", missingKey()
	}
	if len(t) > maxToken {
		return "", unknownKey()
	}
	return t, nil
}

func missingKey() *problem {
	p := newProblem(http.StatusUnauthorized, "unauthorized", "Missing API key")
	p.Recovery = "Send the header Authorization: Bearer, with the secret of a key."
	return p
}

func unknownKey() *problem {
	p := newProblem(http.StatusUnauthorized, "unauthorized", "Invalid API key")
	p.Recovery = "Ask an admin for a key: this one is unknown, revoked or expired."
	return p
}

// authenticate returns whose token a request has.
func (p *Plane) authenticate(ctx context.Context, h http.Header, from netip.Addr) (*principal, *problem) {
	t, bad := token(h)
	if bad != nil {
		return nil, bad
	}
	hash := secretHash(t)
	exempt := p.strangers.accepted(hash)
	if !exempt {
		release, err := p.strangers.turn(ctx, hash)
		if err != nil {
			return nil, storeUnavailable(err)
		}
		if exempt = p.strangers.accepted(hash); exempt {
			release()
		} else {
			defer release()
			if !p.strangers.may(from, time.Now()) {
				return nil, rateLimited(time.Second)
			}
		}
	}
	k, err := p.keyReads.read(ctx, hash)
	if err != nil {
		return nil, p.explain(err, false)
	}
	if k == nil || len(k.Hash) != len(hash) || subtle.ConstantTimeCompare(k.Hash, hash) != 1 || !k.valid(time.Now()) {
		return nil, unknownKey()
	}
	if !exempt {
		p.strangers.accept(from, hash, time.Now())
	}
	return &principal{id: k.ID, Namespace: k.namespace(), scopes: k.Scopes, home: k.namespace() == p.config.Home, hash: hash}, nil
}

// stillValid reports whether the secret that a principal came with is still accepted. If the store
// cannot say, it is.
func (p *Plane) stillValid(ctx context.Context, who *principal) bool {
	k, err := p.keyReads.read(ctx, who.hash)
	return err != nil || k != nil && k.valid(time.Now())
}

// permits returns a problem unless a principal may call an operation.
func (o *operation) permits(who *principal) *problem {
	if len(o.scopes) == 0 { // nil: no key is needed; none: any key will do
		return nil
	}
	for _, s := range o.scopes {
		if who.has(s) {
			if o.home && !who.home {
				p := newProblem(http.StatusForbidden, "missing_scope", "Only a key of the home namespace may do this")
				p.Required = o.scopes
				p.Recovery = "Use a key of the namespace that Config.Home names."
				return p
			}
			return nil
		}
	}
	return missingScope(o.scopes...)
}

// missingScope is the problem of a key without a scope that is needed: one of these.
func missingScope(required ...string) *problem {
	p := newProblem(http.StatusForbidden, "missing_scope", "Missing required scope: "+strings.Join(required, " or "))
	p.Required = required
	p.Recovery = "Use a key with this scope, or ask an admin for one."
	return p
}

// Limits of strangers.
const (
	strangersPerSecond = 10      // unknown tokens of one address
	maxStrangers       = 10_000  // addresses in memory
	maxAccepted        = 100_000 // tokens in memory
)

// strangers bounds how often an address may try unknown tokens, before the store is asked. A token
// that this process has accepted is exempt, so that nobody can lock out those who share its address.
type strangers struct {
	mu    lock.Mutex
	since time.Time             // the second that tries is of
	tries map[netip.Addr]int    // in this second
	known map[[32]byte]struct{} // hashes of tokens that were accepted

	asking map[[32]byte]chan struct{} // hashes of tokens for which somebody asks the store; closed at the end
}

// turn waits until nobody else asks the store for a token that was not accepted yet. So a key whose
// first requests come all at once is no more of a stranger than one whose requests come one by one.
func (s *strangers) turn(ctx context.Context, hash []byte) (release func(), err error) {
	token := [32]byte(hash)
	for {
		s.mu.Lock()
		other := s.asking[token]
		if other == nil {
			if s.asking == nil {
				s.asking = map[[32]byte]chan struct{}{}
			}
			done := make(chan struct{})
			s.asking[token] = done
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.asking, token)
				close(done)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if s.accepted(hash) {
			return func() {}, nil
		}
	}
}

// may reports whether an address may try a token, and counts it.
func (s *strangers) may(from netip.Addr, now time.Time) bool {
	from = network(from)
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.since) >= time.Second || now.Before(s.since) || s.tries == nil {
		s.since, s.tries = now, map[netip.Addr]int{}
	}
	if n := s.tries[from]; n >= strangersPerSecond || n == 0 && len(s.tries) >= maxStrangers {
		return false
	}
	s.tries[from]++
	return true
}

// accept remembers a token, and takes back what may counted for it.
func (s *strangers) accept(from netip.Addr, hash []byte, now time.Time) {
	from = network(from)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tries[from] > 0 && now.Sub(s.since) < time.Second {
		s.tries[from]--
	}
	if s.known == nil || len(s.known) >= maxAccepted {
		s.known = map[[32]byte]struct{}{}
	}
	s.known[[32]byte(hash)] = struct{}{}
}

// accepted reports whether a token was accepted before.
func (s *strangers) accepted(hash []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known[[32]byte(hash)]
	return ok
}

// network returns what an address is counted as: a client has a whole /64 of IPv6.
func network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	p, err := a.Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}
