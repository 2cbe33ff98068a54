package engine_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/memory"
)

// message is what a transport makes of a request's body.
func message(body string) (m signal.Message, err error) {
	b := struct {
		WorkflowID, Name string
		SignalID         *string
		Payload          json.RawMessage
	}{}
	err = json.Unmarshal([]byte(body), &b)
	return signal.Message{WorkflowID: b.WorkflowID, Name: b.Name, ID: b.SignalID, Payload: b.Payload}, err
}

// SIG-1, SIG-3, SIG-4, SIG-5, SIG-6, SIG-19, SIG-35, SIG-37, SIG-52: a message
// without types, as a transport of the host's has it, is the same signal as one with
// them, and has the same canonical result. The sender chooses the signal ID, or there is
// none, over both; without one, each message is another signal.
func TestMessages(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		wf := receiving(4)
		p := boot(t, s, wf)
		h := start(t, wf, p, "o", "")
		post := func(body string) signal.Accepted {
			t.Helper()
			m, err := message(body)
			if err != nil {
				t.Fatal(err)
			}
			a, err := p.SendSignal(ctx, m)
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			return canonical(a)
		}
		first := send(t, approved, p, "o", "a", "evt:1")
		if first.SignalStorageKey != "sig:o:approved:evt%3A1" {
			t.Errorf("its key is %q", first.SignalStorageKey)
		}
		if a := post(`{"workflowId":"o","name":"approved","signalId":"evt:1","payload":"a"}`); a != first {
			t.Errorf("over another transport: %+v, first %+v", a, first)
		}
		b := post(`{"workflowId":"o","name":"approved","payload":"b"}`)
		c := post(`{"workflowId":"o","name":"approved","signalId":null,"payload":"b"}`)
		d := send(t, approved, p, "o", "b", "")
		if b.SignalID == c.SignalID || d.SignalID == b.SignalID || d.SignalID == c.SignalID {
			t.Errorf("without an ID: %+v, %+v and %+v, want three signals", b, c, d)
		}
		for _, a := range []signal.Accepted{b, c, d} {
			if !strings.HasPrefix(a.SignalID, "sig_") || !a.Accepted {
				t.Errorf("without an ID: %+v", a)
			}
		}
		if got := result(t, h); got != "abbb" {
			t.Errorf("received %q", got)
		}
	})
}

// SIG-8, SIG-9, SIG-11: what a message lacks is told before anything is written, sizes
// first, then what is empty, then what is of another type.
func TestMessagesAtTheDoor(t *testing.T) {
	s := new(memory.Store)
	e := made(t, s)
	defer e.Close()
	before := len(entries(t, s, ""))
	id := func(s string) *string { return &s }
	long := strings.Repeat("x", 201)
	for _, c := range []struct {
		m    signal.Message
		want string
	}{
		{signal.Message{WorkflowID: "", Name: long}, "signal name"},
		{signal.Message{WorkflowID: long, Name: ""}, "workflow id"},
		{signal.Message{WorkflowID: "\xff", Name: "", ID: id(long)}, "signal id"},
		{signal.Message{Name: "a", Payload: strings.Repeat("x", engine.MaxPayload)}, "payload"},
		{signal.Message{WorkflowID: "\xff", Name: ""}, "signal name"},
		{signal.Message{WorkflowID: "", Name: "\xff"}, "workflow id"},
		{signal.Message{WorkflowID: "\xff", Name: "a", ID: id("")}, "signal id"},
		{signal.Message{WorkflowID: "o", Name: "a", ID: id(""), Payload: make(chan int)}, "signal id"},
		{signal.Message{WorkflowID: "\xff", Name: "a", Payload: make(chan int)}, "workflow id"},
		{signal.Message{WorkflowID: "o", Name: "a", Payload: make(chan int)}, "payload"},
		{signal.Message{WorkflowID: "o", Name: "a", Payload: json.RawMessage("{")}, "payload"},
	} {
		_, err := e.SendSignal(ctx, c.m)
		if !errors.Is(err, engine.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20q %.20q: %.100v, want ErrInvalid about its %s", c.m.WorkflowID, c.m.Name, err, c.want)
		}
	}
	if after := len(entries(t, s, "")); after != before {
		t.Errorf("%d records were written", after-before)
	}
}

// SIG-12, interleaving 24: what is encrypted with another nonce is the same
// signal, and another value a conflict, whose error shows neither.
func TestEncryptedSignals(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		wf := receiving(1)
		p := boot(t, s, wf, func(c *engine.Config) { c.Codec = newSealed(t, "aes", 'a') })
		h := start(t, wf, p, "o", "")
		first := send(t, approved, p, "o", "secret", "evt_1")
		plain := made(t, s) // encodes otherwise
		defer plain.Close()
		for name, to := range map[string]signal.Sender{"encrypted again": p, "not encrypted": plain} {
			if a := send(t, approved, to, "o", "secret", "evt_1"); a != first {
				t.Errorf("%s: %+v, want the first answer", name, a)
			}
			_, err := approved.Send(ctx, to, "o", "another secret", &signal.Options{ID: "evt_1"})
			if c := (*signal.ConflictError)(nil); !errors.As(err, &c) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s, another value: %v, want a *ConflictError that shows nothing", name, err)
			}
		}
		for k, v := range dumped(t, s) {
			if strings.Contains(v, "secret") {
				t.Errorf("%q holds the plaintext", k)
			}
		}
		if got := result(t, h); got != "secret" {
			t.Errorf("received %q", got)
		}
	})
}
