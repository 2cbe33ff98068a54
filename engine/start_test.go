package engine_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

type cart struct {
	SKU   string
	Cents int
}

func checkout(c *tally) *engine.Workflow[cart, string] {
	return &engine.Workflow[cart, string]{Name: "checkout", Func: func(run *engine.Run, in cart) (string, error) {
		return engine.Step(run, "charge", func(context.Context) (string, error) {
			c.add(in.SKU)
			return fmt.Sprintf("%s for %d", in.SKU, in.Cents), nil
		})
	}}
}

// OP-22: the same workflow and input give the same handle, whether it waits,
// runs or has ended; anything else is ErrExists.
func TestStartIsIdempotent(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var runs tally
		wf := checkout(&runs)
		other := flow("other", nil2)
		apple := cart{"apple", 3}
		again := func(e *engine.Engine) {
			t.Helper()
			h := start(t, wf, e, "o", apple)
			if h.ID() != "o" {
				t.Errorf("id %q", h.ID())
			}
			if _, err := wf.Start(ctx, e, "o", cart{"apple", 4}); !errors.Is(err, engine.ErrExists) {
				t.Errorf("other input: %v, want ErrExists", err)
			}
			if _, err := other.Start(ctx, e, "o", ""); !errors.Is(err, engine.ErrExists) {
				t.Errorf("other workflow: %v, want ErrExists", err)
			}
			if _, err := e.StartWorkflow(ctx, &engine.StartRequest{Workflow: "checkout", ID: "o", Input: json.RawMessage(`{"SKU":"apple","Cents":3}`)}); err != nil {
				t.Errorf("as raw JSON: %v", err)
			}
		}
		client := made(t, s)
		defer client.Close()
		start(t, wf, client, "o", apple)
		again(client) // nobody drives it
		if i := describe(t, client, "o"); i.Status != checkpoint.StatusPending || i.Workflow != "checkout" || i.Owner != "" {
			t.Errorf("before anybody drives it: %+v", i)
		}
		p := boot(t, s, wf, other)
		again(p.Engine)
		if got := result(t, wf.Handle(p, "o")); got != "apple for 3" {
			t.Errorf("result %q", got)
		}
		again(p.Engine) // it has ended
		p.kill()
		p = boot(t, s, wf)
		again(p.Engine)
		if n := runs.of("apple"); n != 1 {
			t.Errorf("charged %d times, want once", n)
		}
		i := describe(t, p, "o")
		if i.Status != checkpoint.StatusCompleted || i.StartedAt.IsZero() || i.EndedAt.Before(i.StartedAt) || i.CreatedAt.After(i.StartedAt) || i.Epoch == 0 {
			t.Errorf("ended: %+v", i)
		}
	})
}

// OP-22: of 64 starts at once one starts it, and all have it.
func TestConcurrentStartsOfOneID(t *testing.T) {
	s := fresh(t)
	var runs tally
	wf := checkout(&runs)
	p := boot(t, s, wf)
	client := made(t, s, func(c *engine.Config) { c.PollInterval = 10 * time.Millisecond })
	defer client.Close()
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			var c engine.Client = p
			if i%2 == 0 {
				c = client
			}
			h, err := wf.Start(ctx, c, "o", cart{"apple", 3})
			if err != nil {
				t.Errorf("start: %v", err)
				return
			}
			if got, err := outcome(h); err != nil || got != "apple for 3" {
				t.Errorf("result %q, %v", got, err)
			}
		})
	}
	wg.Wait()
	if n := runs.of("apple"); n != 1 {
		t.Errorf("charged %d times, want once", n)
	}
	if rows := entries(t, s, "ix:"); len(rows) != 1 {
		t.Errorf("rows in the list: %q, want one", rows)
	}
	p.stop(t)
}

func TestMintedIDs(t *testing.T) {
	s := fresh(t)
	e := made(t, s)
	defer e.Close()
	wf := flow("w", nil2)
	a, b := start(t, wf, e, "", ""), start(t, wf, e, "", "")
	for _, h := range []*engine.Handle[string]{a, b} {
		if id, ok := strings.CutPrefix(h.ID(), "wrun_"); !ok || len(id) != 26 {
			t.Errorf("minted id %q, want wrun_ and a ULID", h.ID())
		}
	}
	if a.ID() == b.ID() {
		t.Errorf("two starts have the id %q", a.ID())
	}
}

// FMT, F11, interleaving 18: what the door lets in and what it does not; and
// what it does not let in leaves no trace.
func TestIDsAtTheDoor(t *testing.T) {
	wf := flow("w", nil2)
	for _, c := range []struct {
		id string
		ok bool
	}{
		{"a", true},
		{strings.Repeat("x", 200), true},
		{strings.Repeat("\x00", 200), true}, // 600 once escaped
		{strings.Repeat("é", 100), true},
		{"a\x00b", true},
		{"a:b", true},
		{"100%", true},
		{"a/b c", true},
		{strings.Repeat("x", 201), false},
		{strings.Repeat("é", 101), false},
		{"\xff", false},
		{"a\xc3", false},
	} {
		s := fresh(t)
		e := made(t, s)
		before := len(entries(t, s, ""))
		_, err := wf.Start(ctx, e, c.id, "")
		if c.ok {
			if err != nil {
				t.Errorf("start %.20q: %v", c.id, err)
			} else if i := describe(t, e, c.id); i.ID != c.id {
				t.Errorf("started %.20q, there is %.20q", c.id, i.ID)
			}
		} else {
			if !errors.Is(err, engine.ErrInvalid) || len(err.Error()) > 300 {
				t.Errorf("start %.20q: %v, want a short ErrInvalid", c.id, err)
			}
			if after := len(entries(t, s, "")); after != before {
				t.Errorf("start %.20q: %d records were written", c.id, after-before)
			}
			if _, err := e.Describe(ctx, c.id); !errors.Is(err, engine.ErrInvalid) {
				t.Errorf("describe %.20q: %v, want ErrInvalid", c.id, err)
			}
		}
		e.Close()
	}
	e := made(t, fresh(t))
	defer e.Close()
	for name, err := range map[string]error{
		"Describe": func() error { _, err := e.Describe(ctx, ""); return err }(),
		"Result":   e.Result(ctx, "", "", nil),
		"Cancel":   e.Cancel(ctx, "", engine.Actor{}),
		"Purge":    e.Purge(ctx, "", audit),
		"Start":    func() error { _, err := e.StartWorkflow(ctx, &engine.StartRequest{ID: "o"}); return err }(),
	} {
		if !errors.Is(err, engine.ErrInvalid) {
			t.Errorf("%s of nothing: %v, want ErrInvalid", name, err)
		}
	}
	if err := e.Cancel(ctx, "o", engine.Actor{Reason: "\xff"}); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("a reason that is not UTF-8: %v, want ErrInvalid", err)
	}
	if err := e.Cancel(ctx, "o", engine.Actor{Reason: strings.Repeat("r", 5000)}); !errors.Is(err, engine.ErrInvalid) {
		t.Errorf("an endless reason: %v, want ErrInvalid", err)
	}
}

// F11: inputs of every kind, and the largest one.
func TestInputsAtTheDoor(t *testing.T) {
	wf := &engine.Workflow[any, any]{Name: "echo", Func: func(_ *engine.Run, in any) (any, error) { return in, nil }}
	largest := strings.Repeat("x", engine.MaxPayload-2) // and two quotes
	for _, c := range []struct {
		name string
		in   any
		ok   bool
	}{
		{"nil", nil, true},
		{"largest", largest, true},
		{"too large", largest + "x", false},
		{"channel", make(chan int), false},
		{"func", func() {}, false},
		{"bad raw JSON", json.RawMessage(`{`), false},
		{"raw JSON", json.RawMessage(`{"a":[1]}`), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := storagetest.NewFaulty(fresh(t), nil)
			p := bootOn(t, f, wf)
			h, err := wf.Start(ctx, p, "o", c.in)
			if !c.ok {
				if !errors.Is(err, engine.ErrInvalid) {
					t.Errorf("start: %v, want ErrInvalid", err)
				}
				if n := len(entries(t, f.Unwrap(), "wf:")); n != 0 {
					t.Errorf("%d records were written", n)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			out := result(t, h)
			if a, b := asJSON(out), asJSON(c.in); a != b {
				t.Errorf("got %.40s of %d bytes, want %.40s of %d", a, len(a), b, len(b))
			}
		})
	}
}

func asJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// A sealed codec encrypts with a nonce of its own for each value.
type sealed struct {
	name string
	aead cipher.AEAD
}

func newSealed(t *testing.T, name string, key byte) *sealed {
	block, err := aes.NewCipher([]byte(strings.Repeat(string(rune(key)), 16)))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return &sealed{name, aead}
}

func (s *sealed) Name() string { return s.name }

func (s *sealed) Encode(_ context.Context, v any) ([]byte, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, s.aead.NonceSize())
	rand.Read(nonce)
	return s.aead.Seal(nonce, nonce, plain, nil), nil
}

func (s *sealed) Decode(_ context.Context, data []byte, v any) error {
	if len(data) < s.aead.NonceSize() {
		return errors.New("too short")
	}
	n := s.aead.NonceSize()
	plain, err := s.aead.Open(nil, data[:n], data[n:], nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, v)
}

// Interleaving 24: what is encrypted with another nonce is the same input.
// Codecs of earlier days still decode; a codec that is missing is told of.
func TestEncryptingCodec(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		old, young := newSealed(t, "aes-1", 'a'), newSealed(t, "aes-2", 'b')
		with := func(own engine.Codec, others ...engine.Codec) func(*engine.Config) {
			return func(c *engine.Config) { c.Codec, c.Codecs = own, others }
		}
		act := &activity.Activity[string, string]{Name: "act", Run: func(_ context.Context, in string) (string, error) { return "of " + in, nil }}
		wf := &engine.Workflow[cart, string]{Name: "checkout", Func: func(run *engine.Run, in cart) (string, error) {
			out, err := act.Do(run, in.SKU)
			if err != nil {
				return "", err
			}
			return out, run.Sleep(10 * time.Minute)
		}}
		p := boot(t, s, wf, with(old))
		start(t, wf, p, "o", cart{"apple", 3})
		start(t, wf, p, "o", cart{"apple", 3})
		start(t, wf, p, "o2", cart{"pear", 3})
		if _, err := wf.Start(ctx, p, "o", cart{"apple", 4}); !errors.Is(err, engine.ErrExists) {
			t.Errorf("other input: %v, want ErrExists", err)
		}
		time.Sleep(time.Minute)
		for e, v := range dumped(t, s) {
			if strings.Contains(v, "apple") && (strings.HasPrefix(e, "wf:") || strings.HasPrefix(e, "log:")) {
				t.Errorf("%q holds the plaintext", e)
			}
		}
		p.close()

		p = boot(t, s, wf, with(young)) // without the old one
		time.Sleep(time.Minute)
		i := describe(t, p, "o")
		if i.Status != checkpoint.StatusRunning || !heldFor(i, engine.ReasonUndecodable) || !strings.Contains(i.Attention[0].Detail, "aes-1") {
			t.Errorf("without its codec: %+v, want it held, naming the codec", i)
		}
		start(t, wf, p, "o", cart{"apple", 3}) // also in another codec it is the same
		p.stop(t)

		p = boot(t, s, wf, with(young, old))
		if got := result(t, wf.Handle(p, "o")); got != "of apple" {
			t.Errorf("with the old codec again: %q", got)
		}
		if got := result(t, wf.Handle(p, "o2")); got != "of pear" {
			t.Errorf("with the old codec again: %q", got)
		}
		p.stop(t)
		p = boot(t, s, wf) // JSON alone
		if _, err := outcome(wf.Handle(p, "o")); err == nil || !strings.Contains(err.Error(), "aes-2") {
			t.Errorf("a result without its codec: %v, want an error naming it", err)
		}
	})
}

func dumped(t *testing.T, s storage.Storage) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, k := range entries(t, s, "") {
		all[k] = string(get(t, s, []byte(k)))
	}
	return all
}

// The sentinels of a workflow pass errors.Is before and after a restart, also in
// a process that does not run it.
func TestWorkflowSentinels(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		other := errors.New("other")
		wf := &engine.Workflow[string, string]{Name: "w", Errors: []error{other, errBroke}, Func: func(*engine.Run, string) (string, error) {
			return "", fmt.Errorf("at last: %w", errBroke)
		}}
		p := boot(t, s, wf)
		start(t, wf, p, "o", "")
		check := func(when string, c engine.Client) {
			t.Helper()
			_, err := outcome(wf.Handle(c, "o"))
			var e *engine.WorkflowError
			if !errors.As(err, &e) || !errors.Is(err, errBroke) || errors.Is(err, other) || e.Sentinel != errBroke || e.Message != "at last: broke" {
				t.Errorf("%s: %+v, want a *WorkflowError that is errBroke", when, err)
			}
		}
		check("before", p)
		p.kill()
		p = boot(t, s, wf)
		check("after", p)
		client := made(t, s)
		defer client.Close()
		check("a client", client)
		var none engine.Info
		if err := client.Result(ctx, "o", "another", &none); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("as a workflow of another name: %v, want ErrNotFound", err)
		}
		if err := client.Result(ctx, "nobody", "w", nil); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("of an id that nobody has: %v, want ErrNotFound", err)
		}
	})
}

// A hooked store calls hooks around its inner store, which may call it again.
type hooked struct {
	storage.Storage
	beforeGet    func(key []byte)
	afterGet     func(key []byte)
	beforeCommit func(b storage.Batch)
	afterCommit  func(b storage.Batch) error
	max          storage.Size
}

func (h *hooked) Unwrap() storage.Storage { return h.Storage }

func (h *hooked) Capabilities() storage.Capabilities {
	c := h.Storage.Capabilities()
	if h.max != (storage.Size{}) {
		c.MaxBatch = h.max
	}
	return c
}

func (h *hooked) Get(ctx context.Context, key []byte) ([]byte, error) {
	if h.beforeGet != nil {
		h.beforeGet(key)
	}
	v, err := h.Storage.Get(ctx, key)
	if h.afterGet != nil {
		h.afterGet(key)
	}
	return v, err
}

func (h *hooked) Commit(ctx context.Context, b storage.Batch) error {
	if h.beforeCommit != nil {
		h.beforeCommit(b)
	}
	if err := b.Check(h.Capabilities().MaxBatch); err != nil {
		return err
	}
	err := h.Storage.Commit(ctx, b)
	if h.afterCommit != nil {
		err = errors.Join(err, h.afterCommit(b))
	}
	return err
}

// touches says that a batch has an operation on a key with a prefix.
func touches(b storage.Batch, prefix string) bool {
	for _, o := range b.Ops {
		if bytes.HasPrefix(o.Key, []byte(prefix)) {
			return true
		}
	}
	return false
}

// A start whose outcome is unknown is in flight; somebody signals the workflow,
// which is in the store already. It has one driver afterwards, and not none.
func TestSignalMeetsAStartOfUnknownOutcome(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		approved := &signal.Signal[string]{Name: "approved"}
		wf := flow("w", func(run *engine.Run) (string, error) { return approved.Receive(run) })
		var once atomic.Bool
		p := bootOn(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Commit" && touches(c.Batch, "wf:o:in") && once.CompareAndSwap(false, true) {
				return storagetest.ErrorAfter
			}
			return storagetest.None
		}), wf)
		time.Sleep(time.Second)
		go func() {
			time.Sleep(500 * time.Microsecond) // the start tries again after a millisecond
			if _, err := approved.Send(ctx, p, "o", "ann", nil); err != nil {
				t.Errorf("send: %v", err)
			}
		}()
		h := start(t, wf, p, "o", "")
		if got := result(t, h); got != "ann" {
			t.Errorf("result %q", got)
		}
	})
}

// Nothing is claimed under an incarnation that is not known yet: another engine
// on the store would take it for dead.
func TestStartBeforeTheEngineIsKnown(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := fresh(t)
		var runs tally
		slow := &activity.Activity[string, int]{Name: "slow", Timeout: time.Hour, Run: func(context.Context, string) (int, error) {
			runs.add("slow")
			time.Sleep(30 * time.Second)
			return 1, nil
		}}
		f := storagetest.NewFaulty(s, nil)
		h := &hooked{Storage: f}
		known := make(chan int)
		h.beforeCommit = func(b storage.Batch) {
			if touches(b, "eng:") {
				<-known
			}
		}
		a := made(t, h, doing(slow))
		ran := make(chan error)
		go func() { ran <- a.Run(ctx) }()
		time.Sleep(time.Second)
		handle := start(t, doing(slow), a, "o", "")
		b := bootOn(t, f, doing(slow))
		time.Sleep(10 * time.Second)
		close(known)
		result(t, handle)
		if n := runs.of("slow"); n != 1 {
			t.Errorf("the activity ran %d times", n)
		}
		b.stop(t)
		a.Close()
		<-ran
	})
}

// A start of unknown outcome whose caller gives up may be there, with this engine as
// its owner: then it is driven.
func TestStartWhoseCallerGaveUp(t *testing.T) {
	virtual(t, func(t *testing.T) {
		abandoned, abandon := context.WithCancel(ctx)
		defer abandon()
		h := &hooked{Storage: fresh(t)}
		h.afterCommit = func(b storage.Batch) error {
			if abandoned.Err() != nil || !isOf(b, "o") {
				return nil
			}
			abandon()
			return errors.New("the answer is lost")
		}
		wf := flow("w", func(run *engine.Run) (string, error) { return "done", nil })
		busy := flow("busy", func(run *engine.Run) (string, error) {
			return engine.Step(run, "step", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
		})
		p := boot(t, h, wf, busy)
		start(t, busy, p, "busy", "")
		time.Sleep(5 * time.Second) // the engine has looked at its own runs, which it does once a minute
		if _, err := wf.Start(abandoned, p, "o", ""); err == nil {
			t.Error("the start is acknowledged")
		}
		time.Sleep(10 * time.Second)
		if i := describe(t, p, "o"); i.Status != checkpoint.StatusCompleted {
			t.Errorf("%+v, want it completed", i)
		}
	})
}

// A start whose caller has given up is applied when the engine has looked for it, also in the place of
// a workflow that was purged: then it is driven.
func TestStartWhoseCallerGaveUpLandsLate(t *testing.T) {
	for name, purged := range map[string]bool{"a new id": false, "the id of a purged workflow": true} {
		t.Run(name, func(t *testing.T) {
			onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
				s := store.Open(t)
				defer s.Close()
				wf := flow("w", func(run *engine.Run) (string, error) { return "done", nil })
				late := commitsLate(s, creates(keys.Workflow("o")))
				if purged { // its second try replaces what the purge has left
					late.is = func(b storage.Batch) bool { return writes(b, "wf:o:in") && !creates(keys.Workflow("o"))(b) }
				}
				// The engine has looked at all its runs just before, and does so once a minute.
				waits := &activity.Activity[string, string]{Name: "waits", Run: func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "", ctx.Err() }}
				busy := flow("busy", func(run *engine.Run) (string, error) { return waits.Do(run, "") })
				p := boot(t, late, wf, busy)
				start(t, busy, p, "busy", "")
				time.Sleep(10 * time.Second)
				if purged {
					result(t, start(t, wf, p, "o", ""))
					if err := p.Purge(ctx, "o", audit); err != nil {
						t.Fatal(err)
					}
				}
				abandoned, abandon := context.WithCancel(ctx)
				defer abandon()
				started := make(chan error, 1)
				go func() {
					_, err := wf.Start(abandoned, p, "o", "")
					started <- err
				}()
				<-late.sent
				abandon()
				if err := <-started; !errors.Is(err, context.Canceled) {
					t.Errorf("start: %v, want that its outcome is unknown", err)
				}
				time.Sleep(10 * time.Second)
				close(late.landing)
				if err := <-late.landed; err != nil {
					t.Fatalf("the late start: %v", err)
				}
				time.Sleep(10 * time.Second)
				if i := describe(t, p, "o"); i.Status != checkpoint.StatusCompleted {
					t.Errorf("%+v, want it completed", i)
				}
				p.stop(t)
			})
		})
	}
}

// A losingAnswers store loses its answer to the first try of each start and each checkpoint, and keeps the batch.
type losingAnswers struct {
	storage.Storage
	mu          sync.Mutex
	tried       map[string]bool
	given, were []storage.Batch // as it was given, and with slices of its own
}

func (s *losingAnswers) Unwrap() storage.Storage { return s.Storage }

func (s *losingAnswers) Commit(ctx context.Context, b storage.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.Storage.Commit(ctx, b)
	if what := fmt.Sprintf("%+v", b.Ops); !s.tried[what] && (writes(b, "wf:") || writes(b, "log:")) {
		s.tried[what] = true
		s.given, s.were = append(s.given, b), append(s.were, kept(b))
		return errors.New("connection lost")
	}
	return err
}

// The batch of a try whose outcome was unknown is left as it is, also after a later try: the store may still have it.
func TestBatchOfUnknownOutcomeIsLeftAsItIs(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := &losingAnswers{Storage: new(memory.Store), tried: map[string]bool{}}
		wf := flow("w", func(run *engine.Run) (string, error) {
			for range 3 {
				if _, err := engine.Step(run, "step", func(context.Context) (string, error) { return "x", nil }); err != nil {
					return "", err
				}
			}
			return "done", nil
		})
		p := boot(t, s, wf)
		for _, id := range []string{"o", "a", "b", "c"} {
			result(t, start(t, wf, p, id, ""))
		}
		p.stop(t)
		if len(s.given) < 4*5 {
			t.Fatalf("%d batches had an unknown outcome, want the start, three steps and the end of each", len(s.given))
		}
		for i := range s.given {
			if !reflect.DeepEqual(s.given[i], s.were[i]) {
				t.Errorf("batch %d is %+v now, and was %+v", i, s.given[i].Ops, s.were[i].Ops)
			}
		}
	})
}

// Who asks for a workflow while it is being started is told that it is not there
// or that it is, and not that the store is damaged.
func TestLookAtAWorkflowThatIsBeingStarted(t *testing.T) {
	virtual(t, func(t *testing.T) {
		wf := flow("w", func(run *engine.Run) (string, error) { return "", nil })
		h := &hooked{Storage: fresh(t)}
		e := made(t, h, wf)
		defer e.Close()
		var once sync.Once
		h.afterGet = func(key []byte) {
			if bytes.Equal(key, keys.Workflow("o")) {
				once.Do(func() { start(t, wf, e, "o", "") })
			}
		}
		if _, err := e.Describe(ctx, "o"); err != nil && !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("describe: %v", err)
		}
	})
}
