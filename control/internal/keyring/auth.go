package keyring

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/storage"
)

// MaxToken is the length of the longest token in bytes. A longer one is unknown.
const MaxToken = 1024

// token returns the token of a request. The problem is nil if there is one.
func token(h http.Header) (string, *operation.Problem) {
	values := h["Authorization"]
	if len(values) > 1 {
		return "", operation.UnknownKey()
	}
	if len(values) == 0 {
		return "", missingKey()
	}
	scheme, t, _ := strings.Cut(values[0], " ")
	if t = strings.Trim(t, " "); !strings.EqualFold(scheme, "Bearer") || t == "" {
		return "", missingKey()
	}
	if len(t) > MaxToken {
		return "", operation.UnknownKey()
	}
	return t, nil
}

func missingKey() *operation.Problem {
	p := operation.NewProblem(http.StatusUnauthorized, "unauthorized", "Missing API key")
	p.Recovery = "Send the header Authorization: Bearer, with the secret of a key."
	return p
}

// A Keyring knows the keys on a store: whose request one is, and how many more of a key may follow.
type Keyring struct {
	store     storage.Storage
	log       *slog.Logger
	home      operation.Namespace // the namespace of the host
	strangers strangers
	secrets   reads.Shared[[32]byte, *keyRecord]
	rates     rates
}

// New returns the keyring of a store. A key may make limit requests in a minute.
func New(s storage.Storage, log *slog.Logger, home operation.Namespace, limit int) *Keyring {
	return &Keyring{store: s, log: log, home: home, rates: rates{store: s, log: log, limit: limit}}
}

// Authenticate returns whose token a request has.
func (r *Keyring) Authenticate(ctx context.Context, h http.Header, from netip.Addr) (*operation.Principal, *operation.Problem) {
	t, bad := token(h)
	if bad != nil {
		return nil, bad
	}
	hash := secretHash(t)
	exempt := r.strangers.accepted(hash)
	if !exempt {
		release, err := r.strangers.turn(ctx, hash)
		if err != nil {
			return nil, operation.StoreUnavailable(err)
		}
		if exempt = r.strangers.accepted(hash); exempt {
			release()
		} else {
			defer release()
			if !r.strangers.may(from, time.Now()) {
				return nil, rateLimited(time.Second)
			}
		}
	}
	k, bad := r.find(ctx, hash)
	if bad != nil {
		if bad.Status == http.StatusUnauthorized {
			r.strangers.forget(hash)
		}
		return nil, bad
	}
	if !exempt {
		r.strangers.accept(from, hash, time.Now())
	}
	return &operation.Principal{ID: k.ID, Namespace: k.namespace(), Scopes: k.Scopes, Home: k.namespace() == r.home, Hash: hash}, nil
}

// Check returns why a principal may begin nothing more: its key has been revoked or has expired since Authenticate.
func (r *Keyring) Check(ctx context.Context, who *operation.Principal) *operation.Problem {
	_, bad := r.find(ctx, who.Hash)
	return bad
}

// find returns the record of a secret that is accepted, or why there is none.
func (r *Keyring) find(ctx context.Context, hash []byte) (*keyRecord, *operation.Problem) {
	// The record is read for each request, since a key may have been revoked just before it. Requests that come at once share a read.
	k, err := r.secrets.Get(ctx, [32]byte(hash), func(ctx context.Context) (*keyRecord, error) {
		return readSecret(ctx, r.store, hash)
	})
	if err != nil {
		return nil, operation.Explain(err, false)
	}
	if k == nil || len(k.Hash) != len(hash) || subtle.ConstantTimeCompare(k.Hash, hash) != 1 || !k.valid(time.Now()) {
		return nil, operation.UnknownKey()
	}
	return k, nil
}

// StillValid reports whether the secret that a principal came with is still accepted. If the store
// cannot say, it is.
func (r *Keyring) StillValid(ctx context.Context, who *operation.Principal) bool {
	k, err := readSecret(ctx, r.store, who.Hash)
	return err != nil || k != nil && k.valid(time.Now())
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
	from = operation.Network(from)
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
	from = operation.Network(from)
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

// forget forgets a token that is accepted no more: whoever has it is a stranger.
func (s *strangers) forget(hash []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, [32]byte(hash))
}

// accepted reports whether a token was accepted before.
func (s *strangers) accepted(hash []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known[[32]byte(hash)]
	return ok
}
