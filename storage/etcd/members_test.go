package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weft-go/weft/internal/etcdtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/etcd"
)

// Which errors make a store turn to another member.
func TestAway(t *testing.T) {
	for err, want := range map[error]bool{
		nil:                      false,
		context.DeadlineExceeded: true,
		rpctypes.ErrNoLeader:     true,
		rpctypes.ErrTimeout:      true,
		rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner): true,
		rpctypes.ErrMemberNotLearner:                           false, // has the same code
		rpctypes.ErrNoSpace:                                    false,
		rpctypes.ErrRequestTooLarge:                            false,
		rpctypes.ErrInvalidAuthToken:                           false,
		storage.ErrNotFound:                                    false,
	} {
		if got := etcd.Away(err); got != want {
			t.Errorf("%v: got %t, want %t", err, got, want)
		}
	}
}

// After which errors it is certain that nothing was written because of the size.
func TestRefused(t *testing.T) {
	exhausted := func(text string) error { return status.Error(codes.ResourceExhausted, text) }
	for err, want := range map[error]bool{
		nil:                         false,
		rpctypes.ErrTooManyOps:      true,
		rpctypes.ErrRequestTooLarge: true,
		exhausted("grpc: received message larger than max (2000 vs. 1000)"):   true,
		exhausted("trying to send message larger than max (2000 vs. 1000)"):   true,
		exhausted("grpc: trying to send message larger than max (2 vs. 1)"):   false, // an answer
		status.Error(codes.Unknown, "trying to send message larger than max"): false,
		exhausted("something else"):                                           false,
		rpctypes.ErrNoSpace:                                                   false, // has the same code
		rpctypes.ErrGRPCNoSpace:                                               false,
		rpctypes.ErrTooManyRequests:                                           false,
		context.DeadlineExceeded:                                              false,
	} {
		if got := etcd.Refused(err); got != want {
			t.Errorf("%v: got %t, want %t", err, got, want)
		}
	}
}

// A learner, which refuses to read and to write, is among the endpoints: it is left, and what it
// refused is sent to another member.
func TestLearner(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	_, err := c.AddLearner()
	must(t, err)
	for range 4 { // a store begins with any of the members
		s := open(t, c, empty())
		for n := range 3 {
			key := fmt.Append(nil, n)
			s.Turn() // from the only other member to the learner
			if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(key, key)}}); err != nil {
				t.Errorf("commit: %v", err)
			}
			s.Turn()
			if v, err := s.Get(t.Context(), key); string(v) != string(key) || err != nil {
				t.Errorf("get: got %q and error %v, want %q", v, err, key)
			}
			s.Turn()
			b := storage.Batch{If: []storage.Condition{storage.Absent(key)}, Ops: []storage.Op{storage.Put(key, key)}}
			if err := s.Commit(t.Context(), b); !errors.Is(err, storage.ErrConflict) {
				t.Errorf("commit: got %v, want ErrConflict", err)
			}
			if page, err := s.Scan(t.Context(), storage.Range{}); len(page) != n+1 || err != nil {
				t.Errorf("got %d entries and error %v, want %d", len(page), err, n+1)
			}
		}
	}
	// A store that has only the learner gives up.
	alone := clientv3.Config{Endpoints: c.Endpoints()[1:]}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if s, err := etcd.Open(ctx, alone, nil); err == nil {
		s.Close()
		t.Error("a store was opened in a learner")
	}
}

// A call that its caller ends says nothing about the member. Many of them do, if the member answers
// none for two seconds.
func TestCallersGiveUp(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, etcdtest.Options{})
	m := c.Members[0]
	s, err := etcd.Open(t.Context(), clientv3.Config{Endpoints: append(c.Endpoints(), "http://"+m.Address)}, nil)
	must(t, err)
	defer s.Close()
	get := func(limit time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if _, err := s.Get(ctx, []byte("k")); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, storage.ErrNotFound) { // it may have been fast enough
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
	}
	answer := func() {
		if _, err := s.Get(t.Context(), []byte("k")); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
	}
	defer m.Continue()
	stopped := func(calls int) {
		must(t, m.Stop())
		for range calls {
			get(100 * time.Millisecond)
		}
		must(t, m.Continue())
	}
	// kept makes calls, in some parts with an answer in between, which must not make the store leave its member. On a busy machine a
	// part may last for so long that the store must leave it. Then it makes them again.
	kept := func(what string, parts int, calls func()) {
		t.Helper()
		for range 20 {
			answer()
			before, longest := s.Member(), time.Duration(0)
			for range parts {
				began := time.Now()
				calls()
				if parts > 1 {
					answer()
				}
				longest = max(longest, time.Since(began))
			}
			if got := s.Member(); got == before {
				return
			} else if longest < 1800*time.Millisecond {
				t.Errorf("after %s: got member %d, want %d", what, got, before)
				return
			}
		}
		t.Errorf("%s always take longer than a member may be silent", what)
	}
	kept("calls that were too short", 1, func() {
		for began, n := time.Now(), 0; n < 100 && time.Since(began) < time.Second; n++ {
			get(50 * time.Microsecond)
		}
	})
	kept("calls of 0.3 seconds", 1, func() { stopped(3) })
	must(t, m.Stop())
	before := s.Member()
	began := time.Now()
	for s.Member() == before && time.Since(began) < 8*time.Second { // later the connection is found dead
		get(100 * time.Millisecond)
	}
	if s.Member() == before {
		t.Error("a member that has answered nothing for eight seconds was not left")
	}
	must(t, m.Continue())
	kept("six times calls of 0.6 seconds and an answer", 6, func() { stopped(6) })
}
