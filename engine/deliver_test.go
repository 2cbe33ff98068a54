package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// A halting store has a driver, or a sender, halt where it reads or writes.
type halting struct {
	storage.Storage
	inbox   atomic.Int32  // the driver halts after so many scans of the inbox
	driver  chan struct{} // and goes on when this is closed
	sending atomic.Bool   // the next sender halts before it commits
	sender  chan struct{}
	damaged atomic.Bool // the next read of the workflow record fails
}

func newHalting() *halting {
	return &halting{Storage: new(memory.Store), driver: make(chan struct{}), sender: make(chan struct{})}
}

func (h *halting) Unwrap() storage.Storage { return h.Storage }

func (h *halting) Get(ctx context.Context, key []byte) ([]byte, error) {
	if strings.HasPrefix(string(key), "wf:") && h.damaged.CompareAndSwap(true, false) {
		return nil, storage.ErrCorrupt
	}
	return h.Storage.Get(ctx, key)
}

func (h *halting) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := h.Storage.Scan(ctx, r)
	if strings.HasPrefix(string(r.Start), "inbox:") && h.inbox.Add(-1) == 0 {
		<-h.driver
	}
	return page, err
}

func (h *halting) Commit(ctx context.Context, b storage.Batch) error {
	if writes(b, "sigres:") && h.sending.CompareAndSwap(true, false) {
		<-h.sender
	}
	return h.Storage.Commit(ctx, b)
}

// SG5: a signal that is handed to a driver which has not yet looked at those that
// were accepted before it, of other names, is received after them.
func TestDeliveryIsInTheOrderOfAcceptance(t *testing.T) {
	virtual(t, func(t *testing.T) {
		other := &signal.Signal[string]{Name: "other"}
		wf := flow("w", func(run *engine.Run) (string, error) {
			y, n := yes.Next(run), no.Next(run)
			switch first, err := engine.Select(run, y, n, run.After(2*time.Hour)); {
			case err != nil:
				return "", err
			case first == y:
				return y.Get(run)
			case first == n:
				return n.Get(run)
			}
			return "late", nil
		})
		s := newHalting()
		p := boot(t, s, wf, parkAfter(time.Second))
		h := start(t, wf, p, "w", "")
		time.Sleep(500 * time.Millisecond)
		s.inbox.Store(2) // when it comes to park
		time.Sleep(time.Second)

		var senders sync.WaitGroup
		defer senders.Wait()
		s.sending.Store(true)
		behind := func(m *signal.Signal[string], v string) {
			senders.Go(func() { m.Send(ctx, p, "w", v, nil) }) // the last may find that it has ended
			synctest.Wait()
		}
		behind(other, "leads")
		behind(yes, "first") // with the next, in one commit
		behind(other, "another")
		close(s.sender)
		synctest.Wait()
		behind(no, "second")
		time.Sleep(3 * time.Hour) // the timer is due: the run is not parked
		close(s.driver)
		if got := result(t, h); got != "first" {
			t.Errorf("received %q, and before it another was accepted", got)
		}
	})
}

// SG5: a signal is not handed to a driver that waits for it while another engine's was
// accepted before it, of which nobody has told the driver.
func TestDeliveryBehindOneThatNobodyToldOf(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		elsewhere := made(t, s)
		defer elsewhere.Close()
		h := start(t, receiving(2), elsewhere, "o", "")
		p := boot(t, s, receiving(2), func(c *engine.Config) { c.PollInterval = time.Hour })
		time.Sleep(time.Second)
		send(t, approved, elsewhere, "o", "1", "")
		time.Sleep(time.Second)
		send(t, approved, p, "o", "2", "")
		if got := result(t, h); got != "12" {
			t.Errorf("received %q", got)
		}
	})
}

// LV: a sender that has handed its signal to a driver is answered, also if the
// driver meets an error before it comes to that.
func TestDeliveryToADriverThatFails(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) {
			v, _, err := yes.ReceiveWithin(run, 2*time.Hour)
			return v, err
		})
		s := newHalting()
		p := boot(t, s, wf, parkAfter(time.Second))
		start(t, wf, p, "w", "")
		time.Sleep(500 * time.Millisecond)
		s.inbox.Store(1) // when it comes to park
		time.Sleep(time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		sent := make(chan error, 1)
		go func() {
			_, err := yes.Send(ctx, p, "w", "v", nil)
			sent <- err
		}()
		synctest.Wait()
		if err := p.Cancel(ctx, "w", engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour) // the receive is due: the run is not parked
		s.damaged.Store(true)
		close(s.driver)
		if err := <-sent; errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the sender has waited for ever: %v", err)
		}
	})
}

// Of the sends with one ID one is no repetition, also if the driver that has accepted the signal is cut off before
// it knows, and so cannot answer the sender.
func TestDeliveryToADriverThatIsCutOff(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := &hooked{Storage: new(memory.Store)}
		var p *process
		var ended sync.WaitGroup
		var accepted atomic.Int32
		sent := make(chan struct{})
		h.afterCommit = func(b storage.Batch) error {
			if writes(b, "sigres:") && accepted.Add(1) == 1 {
				ended.Go(func() {
					if err := p.Terminate(ctx, "o", audit); err != nil {
						t.Error(err)
					}
				})
				<-sent
			}
			return nil
		}
		p = boot(t, h, receiving(2))
		start(t, receiving(2), p, "o", "")
		time.Sleep(time.Second)
		if !engine.Receives(p.Engine, "o") {
			t.Error("the run does not wait for a signal")
		}
		for _, repeated := range []bool{false, true} {
			a, err := approved.Send(ctx, p, "o", "v", &signal.Options{ID: "evt_1"})
			if err != nil || a.Repeated != repeated {
				t.Errorf("accepted %+v, %v, want that it is a repetition: %v", a, err, repeated)
			}
			if !repeated {
				close(sent)
				ended.Wait()
			}
		}
	})
}
