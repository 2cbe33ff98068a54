package etcd

import (
	"context"
	"errors"
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

	mu   sync.Mutex
	turn int // of all, counted on
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
	m.client.SetEndpoints(m.all[m.turn%len(m.all)])
}

// ask makes one call, which ends after limit. If the member does not answer, the calls that
// follow go to the next.
func (s *Store) ask(ctx context.Context, limit time.Duration, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	turn := s.members.current()
	late := time.AfterFunc(silence, func() { s.members.leave(turn) })
	defer late.Stop()
	err := call(ctx)
	if away(err) {
		s.members.leave(turn)
	}
	return err
}

// read makes a call that may be repeated, until a member answers it.
func (s *Store) read(ctx context.Context, call func(context.Context) error) error {
	inner, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := s.ask(inner, silence, call)
		switch {
		case err == nil:
			return nil
		case s.ctx.Err() != nil:
			return storage.ErrClosed
		case ctx.Err() != nil:
			return errors.Join(ctx.Err(), err)
		case inner.Err() != nil || !away(err) && !renewed(err):
			return err
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

// refused reports whether the server found a request too large and did nothing.
func refused(err error) bool {
	return errors.Is(err, rpctypes.ErrTooManyOps) || errors.Is(err, rpctypes.ErrRequestTooLarge)
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
