package postgres

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

// A batch waits only because another one, before it in the queue, names its key. Its caller gives up, and the batch
// behind it is committed at once.
func TestWithdrawnBatchLetsOthersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{queue: newQueue()}
		enter := func(names ...string) *ticket {
			var b storage.Batch
			for _, name := range names {
				b.Ops = append(b.Ops, storage.Put([]byte(name), nil))
			}
			x := s.tickets.get(b)
			if err := s.enter(x); err != nil {
				t.Fatal(err)
			}
			return x
		}
		enter("a")
		if g := s.next(nil); len(g) != 1 {
			t.Fatalf("%d batches are taken, want the first", len(g))
		}
		both, behind := enter("a", "b"), enter("b")
		group := make(chan []*ticket)
		go func() { group <- s.next(nil) }()
		synctest.Wait() // for who waits for work
		if _, ok := s.queue.withdraw(both); !ok {
			t.Fatal("the batch is not in the queue")
		}
		if g := <-group; len(g) != 1 || g[0] != behind {
			t.Errorf("%d batches are taken, want the one behind", len(g))
		}
	})
}

// An urgent batch whose caller gives up while the connection for urgent batches is in use was not written, and says so.
func TestWithdrawnUrgentBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := errors.New("of the batch ahead")
		s := &Store{queue: newQueue(), urgent: make(chan *session, 1)}
		s.queue.lastErr = ahead
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put([]byte("a"), nil)}, Urgent: true})
		}()
		synctest.Wait() // until it waits for the connection
		cancel()
		err := <-ended
		if w, ok := errors.AsType[*storage.WithdrawnError](err); !ok || w.Ended != context.Canceled || w.Last != ahead {
			t.Errorf("got %v, want a WithdrawnError", err)
		}
	})
}

// A batch that was skipped, and has then waited in a lane for too long, is answered.
func TestSkippedBatchIsLateInItsLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{queue: newQueue()}
		x := s.tickets.get(storage.Batch{Ops: []storage.Op{storage.Put([]byte("k"), nil)}})
		if err := s.enter(x); err != nil {
			t.Fatal(err)
		}
		g := s.next(nil)
		x.skipped, x.since = true, x.since.Add(-patience-time.Second)
		s.finish(g, nil)
		if <-x.woken; x.err != errBusy {
			t.Errorf("got %v, want errBusy", x.err)
		}
		s.queue.shut()
		s.running.Wait()
	})
}

// Only a batch that was judged is told the size of its group, and only those count.
func TestGroupHasTheJudgedOnly(t *testing.T) {
	s := &Store{queue: newQueue()}
	sizes := []int{-1, -1, -1}
	var g []*ticket
	for i := range sizes {
		x := s.tickets.get(storage.Batch{Ops: []storage.Op{storage.Put([]byte{byte(i)}, nil)}, Group: &sizes[i]})
		if err := s.enter(x); err != nil {
			t.Fatal(err)
		}
		g = append(g, x)
	}
	s.next(nil)
	g[1].err = storage.ErrConflict
	g[2].skipped = true
	if _, ok := s.queue.withdraw(g[2]); ok {
		t.Fatal("the batch is in a group and is withdrawn")
	}
	s.finish(slices.Clone(g), nil)
	if want := []int{2, 2, -1}; !slices.Equal(sizes, want) || g[2].err != errWithdrawn {
		t.Errorf("the batches are told groups of %d, want %d; the error of the last is %v", sizes, want, g[2].err)
	}
}

// A connection is direct if the server sees it where it is: other addresses, or other ports, have been translated.
func TestDirect(t *testing.T) {
	text, number := func(s string) *string { return &s }, func(n int) *int { return &n }
	tcp := func(ip, zone string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 4711, Zone: zone} }
	for _, c := range []struct {
		local net.Addr
		host  *string
		port  *int
		want  bool
	}{
		{tcp("10.0.0.7", ""), text("10.0.0.7"), number(4711), true},
		{tcp("10.0.0.7", ""), text("10.0.0.7"), number(4712), false},
		{tcp("10.0.0.7", ""), text("192.0.2.1"), number(4711), false},
		{tcp("10.0.0.7", ""), text("::ffff:10.0.0.7"), number(4711), true},
		{tcp("fe80::1", "eth0"), text("fe80::1"), number(4711), true},
		{tcp("10.0.0.7", ""), nil, nil, false},
		{&net.UnixAddr{Net: "unix"}, nil, nil, true},
		{&net.UnixAddr{Net: "unix"}, text("127.0.0.1"), number(4711), false},
		{&net.IPAddr{IP: net.IPv4(10, 0, 0, 7)}, nil, nil, false},
		{nil, nil, nil, false},
	} {
		if got := direct(c.local, c.host, c.port); got != c.want {
			t.Errorf("%v: got %t, want %t", c, got, c.want)
		}
	}
}

// A commit that the server has rolled back is undone; of one that it does not know the end of, nobody does.
func TestOutcome(t *testing.T) {
	for code, undone := range map[string]bool{"40001": true, "40P01": true, "40003": false, "XX000": false} {
		err := outcome(&pgconn.PgError{Code: code, SeverityUnlocalized: "ERROR"}, true)
		if _, got := errors.AsType[*undoneError](err); got != undone {
			t.Errorf("%s: %T, want undone = %v", code, err, undone)
		}
	}
}
