package engine_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// A planter puts the payload of a signal into the store, and nothing else of it, at the
// moment in which its acceptance is about to be committed: after all that is read before.
type planter struct {
	s       storage.Storage
	planted []byte // its key
	value   []byte
}

func (p *planter) plant(t testing.TB, name, signalID string) {
	p.planted = keys.Signal("o", name, signalID)
	raw, err := record.Seal(p.planted, journal.Version, &acceptance.Payload{Generation: "of nobody", Data: []byte(`"planted"`)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.value = raw
	put(t, p.s, p.planted, raw)
}

// acceptsIt says that b is the acceptance of a signal with this ID, or of any if it is "".
func acceptsIt(b storage.Batch, signalID string) (name, id string, ok bool) {
	for _, o := range b.Ops {
		if o.Kind != storage.PutOp || !strings.HasPrefix(string(o.Key), "sigres:o:") {
			continue
		}
		if parts, err := storage.SplitKey(o.Key); err == nil && (signalID == "" || parts[3] == signalID) {
			return parts[2], parts[3], true
		}
	}
	return "", "", false
}

// SIG-42, SIG-48, T-21: a payload that is there without its acceptance is a fault on
// every path by which a signal is accepted, and whatever was read before the commit
// finds it. Nothing is accepted or received, what is there stays as it is, and the run
// goes on.
func TestPayloadWithoutItsAcceptance(t *testing.T) {
	evt := &signal.Options{ID: "evt_1"}
	for path, c := range map[string]struct {
		started bool // by a client
		driven  bool // by an engine
		options []any
		receive int                                               // signals
		send    func(t *testing.T, by *engine.Engine, log *lines) // evt_1, which is told to be indeterminate
	}{
		"send":                                 {started: true, receive: 1},
		"send to the driver":                   {started: true, driven: true, receive: 1},
		"send that claims":                     {started: true, driven: true, options: []any{parkAfter(time.Second)}, receive: 1},
		"send with start to one that is there": {started: true, receive: 1, send: withStart(evt)},
		"send with start":                      {receive: 1, send: withStart(evt)},
		"sends that arrive together": {started: true, receive: 4, send: func(t *testing.T, by *engine.Engine, log *lines) {
			var all sync.WaitGroup
			defer all.Wait()
			for _, id := range []string{"first", "evt_1", "third"} { // the first is alone, and is waited for
				all.Go(func() {
					_, err := approved.Send(ctx, by, "o", id, &signal.Options{ID: id})
					if id == "evt_1" {
						indeterminate(t, id, err, log)
					} else if err != nil {
						t.Errorf("%s: %v", id, err)
					}
				})
				synctest.Wait()
			}
		}},
	} {
		for _, early := range []bool{true, false} {
			t.Run(sprint(path, ", there before: ", early), func(t *testing.T) {
				onEachStore(t, func(t *testing.T, s storage.Storage) {
					log := new(lines)
					p := &planter{s: s}
					var mu sync.Mutex
					halts := path == "sends that arrive together"
					on := func(s storage.Storage) *storagetest.Faulty {
						return storagetest.NewFaulty(s, func(call storagetest.Call) storagetest.Fault {
							if call.Method != "Commit" {
								return storagetest.None
							}
							mu.Lock()
							halted := halts
							if _, _, ok := acceptsIt(call.Batch, ""); ok {
								halts = false
							} else {
								halted = false
							}
							mu.Unlock()
							if halted {
								time.Sleep(time.Second) // others gather behind it
							}
							mu.Lock()
							defer mu.Unlock()
							if _, _, ok := acceptsIt(call.Batch, "evt_1"); ok && p.planted == nil {
								p.plant(t, "approved", "evt_1")
							}
							return storagetest.None
						})
					}
					wf := receiving(c.receive)
					client := made(t, on(s), log.logger())
					defer client.Close()
					if c.started {
						start(t, wf, client, "o", "")
					}
					by := client
					options := append([]any{wf, log.logger()}, c.options...)
					var driver *process
					if c.driven {
						driver = bootOn(t, on(s), options...)
						by = driver.Engine
						time.Sleep(time.Minute)
					}
					if early {
						mu.Lock()
						p.plant(t, "approved", "evt_1")
						mu.Unlock()
					}
					if send := c.send; send != nil {
						send(t, by, log)
					} else {
						_, err := approved.Send(ctx, by, "o", "secret", evt)
						indeterminate(t, path, err, log)
					}
					time.Sleep(time.Minute)
					if p.planted == nil {
						t.Fatal("it never came to a commit")
					}
					if now := get(t, s, p.planted); string(now) != string(p.value) {
						t.Errorf("the payload that was there is %q", now)
					}
					for _, k := range entries(t, s, "sigres:o:") {
						if strings.HasSuffix(k, ":evt_1") {
							t.Errorf("it is accepted: %s", k)
						}
					}

					// A person clears it, and the sender sends again.
					if _, err := wf.Start(ctx, client, "o", ""); err != nil {
						t.Fatal(err)
					}
					if driver == nil {
						driver = bootOn(t, on(s), options...)
					}
					if err := driver.ClearSignal(ctx, "o", "approved", "evt_1", audit); err != nil {
						t.Fatal(err)
					}
					want := "v"
					if c.receive > 1 {
						send(t, approved, driver, "o", "x", "")
						want = "firstthirdxv"
					}
					send(t, approved, driver, "o", "v", "evt_1")
					if got := result(t, wf.Handle(driver, "o")); got != want {
						t.Errorf("received %q, want %q", got, want)
					}
				})
			})
		}
	}
}

func withStart(evt *signal.Options) func(t *testing.T, by *engine.Engine, log *lines) {
	return func(t *testing.T, by *engine.Engine, log *lines) {
		_, err := approved.SendWithStart(ctx, by, receiving(1).Request("o", ""), "secret", evt)
		indeterminate(t, "send with start", err, log)
	}
}

// The same of a signal that a workflow sends: it is told, and does not try for ever.
func TestPayloadWithoutItsAcceptanceOfARun(t *testing.T) {
	for _, driven := range []bool{false, true} {
		t.Run(sprint("driven: ", driven), func(t *testing.T) {
			onEachStore(t, func(t *testing.T, s storage.Storage) {
				p := &planter{s: s}
				var mu sync.Mutex
				f := storagetest.NewFaulty(s, func(call storagetest.Call) storagetest.Fault {
					mu.Lock()
					defer mu.Unlock()
					if name, id, ok := acceptsIt(call.Batch, ""); ok && call.Method == "Commit" && p.planted == nil {
						p.plant(t, name, id)
					}
					return storagetest.None
				})
				wf := receiving(1)
				sender := flow("sender", func(run *engine.Run) (string, error) {
					err := approved.SendFrom(run, "o", "secret")
					return sprint(err), nil
				})
				options := []any{sender}
				if driven {
					options = append(options, wf)
				}
				client := made(t, s)
				defer client.Close()
				start(t, wf, client, "o", "")
				e := bootOn(t, f, options...)
				time.Sleep(time.Minute)
				if got := result(t, start(t, sender, e, "s", "")); !strings.Contains(got, "SignalAcceptanceIndeterminate") {
					t.Errorf("the run is told %q", got)
				}
				if p.planted == nil || string(get(t, s, p.planted)) != string(p.value) || len(entries(t, s, "sigres:o:")) > 0 {
					t.Error("it was accepted, or never came to a commit")
				}
			})
		})
	}
}
