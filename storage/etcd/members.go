package etcd

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weft-go/weft/storage"
)

// members make the client use one member of the cluster at a time. The client by itself would
// send every third call to a member that does not answer.
type members struct {
	client *clientv3.Client
	all    []string

	mu     sync.Mutex
	turn   int           // of all, counted on
	waited time.Duration // for answers of this member, in calls that their callers ended, since its last answer
	until  time.Time     // when the last of these calls ended
}

func (m *members) init(client *clientv3.Client, all []string) {
	m.client, m.all = client, all
	client.SetEndpoints(all[0])
}

func (m *members) current() (turn int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.turn
}

// leave turns to the next member, unless somebody has done so since turn. Calls that the other
// is answering are not disturbed.
func (m *members) leave(turn int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.turn != turn || len(m.all) == 1 {
		return
	}
	m.turn++
	m.waited = 0
	m.client.SetEndpoints(m.all[m.turn%len(m.all)])
}

// answered notes that the member has answered.
func (m *members) answered(turn int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.turn == turn {
		m.waited = 0
	}
}

// ended notes that a caller ended a call, made at began, which had no answer yet. It reports whether
// such calls have waited for as long as silence together, with no answer in between.
func (m *members) ended(turn int, began time.Time) (silent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.turn != turn {
		return false
	}
	if began.Before(m.until) { // calls at the same time count once
		began = m.until
	}
	m.until = time.Now()
	m.waited += m.until.Sub(began)
	return m.waited >= silence
}

// ask makes one call, which ends after limit. If the member does not answer, the calls that
// follow go to the next. A call that its caller ends before that says nothing by itself.
func (s *Store) ask(caller context.Context, limit time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(caller, limit)
	defer cancel()
	turn, began := s.members.current(), time.Now()
	late := time.AfterFunc(silence, func() { s.members.leave(turn) })
	defer late.Stop()
	err := call(ctx)
	switch {
	case !away(err):
		s.members.answered(turn)
	case over(caller) == nil || s.members.ended(turn, began):
		s.members.leave(turn)
	}
	return err
}

// over returns why ctx has ended, or nil. Its deadline may have passed before its timer says so.
func over(ctx context.Context) error {
	if deadline, some := ctx.Deadline(); ctx.Err() == nil && some && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// read makes a call that may be repeated, until a member answers it.
func (s *Store) read(ctx context.Context, call func(context.Context) error) error {
	inner, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	limit := silence
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := s.ask(inner, limit, call)
		why := over(ctx)
		switch {
		case err == nil:
			return nil
		case s.ctx.Err() != nil:
			return storage.ErrClosed
		case why != nil:
			return errors.Join(why, err)
		case inner.Err() != nil || !away(err) && !renewed(err):
			return err
		}
		if code(err) == codes.DeadlineExceeded { // a member may need longer for a range that is long
			limit *= 2
		}
		select {
		case <-inner.Done():
		case <-time.After(wait):
		}
	}
}

// away reports whether err means that the member does not answer, or that it cannot because
// it has no leader or is a learner.
func away(err error) bool {
	switch code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	return learner(err)
}

var errLearner = rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)

// learner reports whether the member refused a call because it is a learner. It did nothing.
func learner(err error) bool { return errors.Is(err, errLearner) }

// renewed reports whether a call was refused because the client's token had expired, or was
// older than a change of the users or roles. The client has fetched a new one. Nothing was
// written.
func renewed(err error) bool {
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) || errors.Is(err, rpctypes.ErrUserEmpty)
}

// refused reports whether the server, or gRPC before it, found a request too large and did nothing.
func refused(err error) bool {
	return errors.Is(err, rpctypes.ErrTooManyOps) || errors.Is(err, rpctypes.ErrRequestTooLarge) || oversize(err)
}

// oversize reports whether a message was larger than gRPC lets the client send or the server
// receive. It is not about an answer that is too large for the client: the client's limit for these
// is at least that for requests, and the answer to a transaction is short.
func oversize(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.ResourceExhausted &&
		(strings.HasPrefix(s.Message(), "trying to send message larger than max") || strings.HasPrefix(s.Message(), "grpc: received message larger than max"))
}

func code(err error) codes.Code {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return codes.DeadlineExceeded
	}
	return status.Code(err)
}
