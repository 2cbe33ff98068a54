package engine_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// tear leaves of an acceptance what a crash between two writes would have left:
// the payload, and nothing else.
func tear(t *testing.T, s storage.Storage, id, name, signalID string) {
	t.Helper()
	b := storage.Batch{Ops: []storage.Op{storage.Delete(keys.Accepted(id, name, signalID))}}
	for _, k := range entries(t, s, "inbox:"+id+":") {
		b.Ops = append(b.Ops, storage.Delete([]byte(k)))
	}
	if err := s.Commit(ctx, b); err != nil {
		t.Fatal(err)
	}
}

// indeterminate checks SIG-48, SIG-49, SIG-50: the fault names everything but the
// payload, and is in the log once, under its correlation id.
func indeterminate(t *testing.T, how string, err error, log *lines) {
	t.Helper()
	var i *signal.IndeterminateError
	if !errors.As(err, &i) || !errors.Is(err, signal.ErrConflict) || i.Code() != "SignalAcceptanceIndeterminate" || !strings.Contains(err.Error(), i.Code()) {
		t.Errorf("%s: %v, want an *IndeterminateError", how, err)
		return
	}
	if i.WorkflowID != "o" || i.SignalName != "approved" || i.SignalID != "evt_1" || len(i.CorrelationID) != 26 {
		t.Errorf("%s: %+v", how, *i)
	}
	if strings.Contains(err.Error(), "secret") || log.count("secret") > 0 {
		t.Errorf("%s: it shows the payload", how)
	}
	if n := log.count(i.CorrelationID); n != 1 {
		t.Errorf("%s: %d times in the log, want once", how, n)
	}
}

// SIG-42, SIG-48 to SIG-51, OP-12: a payload without its acceptance is a fault on
// every path, and enqueues nothing, until an operator has cleared it.
func TestAcceptanceIsIndeterminate(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, log := new(memory.Store), new(lines)
		wf := receiving(1)
		sender := flow("sender", func(run *engine.Run) (string, error) {
			return "", approved.SendFrom(run, "o", "secret")
		})
		client := made(t, s, wf, log.logger())
		start(t, wf, client, "o", "")
		send(t, approved, client, "o", "secret", "evt_1")
		tear(t, s, "o", "approved", "evt_1")
		before := entries(t, s, "")

		evt := &signal.Options{ID: "evt_1"}
		for range 2 { // SIG-51: to send again does not help
			_, err := approved.Send(ctx, client, "o", "secret", evt)
			indeterminate(t, "send", err, log)
			_, err = approved.Send(ctx, client, "o", "another secret", evt)
			indeterminate(t, "send of another payload", err, log)
			_, err = approved.SendWithStart(ctx, client, wf.Request("o", ""), "secret", evt)
			indeterminate(t, "send with start", err, log)
		}
		together := make(chan error)
		for range 5 {
			go func() {
				_, err := approved.Send(ctx, client, "o", "secret", evt)
				together <- err
			}()
		}
		for range 5 {
			indeterminate(t, "sends that arrive together", <-together, log)
		}
		if after := entries(t, s, ""); len(after) != len(before) {
			t.Errorf("%d records, before %d", len(after), len(before))
		}
		var listed []engine.SignalInfo
		for i, err := range client.Signals(ctx, "o") {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, i)
		}
		if want := (engine.SignalInfo{Name: "approved", ID: "evt_1", Bytes: len(`"secret"`), Indeterminate: true}); len(listed) != 1 || listed[0] != want {
			t.Errorf("an operator sees %+v, want %+v", listed, want)
		}
		client.Close()

		// SIG-53: after a restart it is the same.
		p := boot(t, s, wf, sender, log.logger())
		time.Sleep(time.Minute)
		_, err := approved.Send(ctx, p, "o", "secret", evt)
		indeterminate(t, "after a restart", err, log)
		if err := p.ClearSignal(ctx, "o", "approved", "evt_1", audit); err != nil {
			t.Fatal(err)
		}
		send(t, approved, p, "o", "v", "evt_1")
		if got := result(t, wf.Handle(p, "o")); got != "v" {
			t.Errorf("received %q", got)
		}
	})
}

// The fault is told also of a workflow that has ended, and to a run that sends.
func TestAcceptanceIsIndeterminateAfterTheEnd(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, log := new(memory.Store), new(lines)
		wf := flow("w", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		p := boot(t, s, wf, log.logger())
		h := start(t, wf, p, "o", "")
		send(t, approved, p, "o", "secret", "evt_1")
		send(t, yes, p, "o", "v", "")
		result(t, h)
		tear(t, s, "o", "approved", "evt_1")
		_, err := approved.Send(ctx, p, "o", "secret", &signal.Options{ID: "evt_1"})
		indeterminate(t, "after the end", err, log)
		if err := p.ClearSignal(ctx, "o", "approved", "evt_1", audit); err != nil {
			t.Error(err)
		}
		if _, err := approved.Send(ctx, p, "o", "secret", &signal.Options{ID: "evt_1"}); !errors.Is(err, engine.ErrTerminal) {
			t.Errorf("cleared: %v, want ErrTerminal", err)
		}
	})
}

// SIG-51: a run whose own signal is indeterminate is told so, and does not try for ever.
func TestSendFromThatIsIndeterminate(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := &hooked{Storage: new(memory.Store)}
		sender := flow("sender", func(run *engine.Run) (string, error) {
			err := approved.SendFrom(run, "o", "secret")
			return sprint(errors.Is(err, signal.ErrConflict)), nil
		})
		wf := receiving(1)
		var once atomic.Bool
		h.afterCommit = func(b storage.Batch) error {
			if touches(b, "sigseq:o") && once.CompareAndSwap(false, true) {
				tear(t, h.Storage, "o", "approved", strings.Split(entries(t, h.Storage, "sig:o:")[0], ":")[3])
				return errBroke // so that it tries again
			}
			return nil
		}
		client := made(t, h)
		defer client.Close()
		start(t, wf, client, "o", "")
		p := boot(t, h, sender)
		if got := result(t, start(t, sender, p, "s", "")); got != "true" {
			t.Errorf("it is a conflict: %v", got)
		}
	})
}
