package engine_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/storage/storagetest"
)

// SIG-41, SIG-43, SIG-53: a process dies when it writes the payload of a signal, and
// another one opens the files and sends again. If the first died before it wrote, nothing
// of it is durable; if it died after, the retry is answered with what is stored. Either
// way the signal is there once.
func TestSenderDies(t *testing.T) {
	for adapter, open := range map[string]func(path string) (storage.Storage, error){
		"sqlite": func(path string) (storage.Storage, error) { return stored(sqlite.Open(path, nil)) },
		"bolt":   func(path string) (storage.Storage, error) { return stored(bolt.Open(path, nil)) },
	} {
		for when, fault := range map[string]storagetest.Fault{"before": storagetest.CrashBefore, "after": storagetest.CrashAfter} {
			t.Run(adapter+", "+when+" it writes", func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "store")
					s, err := open(path)
					if err != nil {
						t.Fatal(err)
					}
					f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
						if c.Method == "Commit" && touches(c.Batch, "sig:o:") {
							return fault
						}
						return storagetest.None
					})
					wf := receiving(2)
					dies := made(t, f)
					start(t, wf, dies, "o", "")
					brief, cancel := context.WithTimeout(ctx, time.Minute)
					defer cancel()
					if a, err := approved.Send(brief, dies, "o", "v", &signal.Options{ID: "evt_1"}); err == nil {
						t.Fatalf("who died was answered %+v", a)
					}
					dies.Close()
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}

					if s, err = open(path); err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					left := append(entries(t, s, "sig"), entries(t, s, "inbox:")...)
					if fault == storagetest.CrashBefore && len(left) > 0 {
						t.Errorf("durable are %q", left)
					}
					p := boot(t, s)
					defer p.kill()
					time.Sleep(time.Minute)
					again := send(t, approved, p, "o", "v", "evt_1")
					key := []byte("sigres:o:approved:evt_1")
					first, err := acceptance.OpenAccepted(storage.Entry{Key: key, Value: get(t, s, key)})
					if err != nil || again != first {
						t.Errorf("answered %+v; stored is %+v, %v", again, first, err)
					}
					if got := sprint(signalsOf(t, p.Engine, "o")); got != "[approved/evt_1]" {
						t.Errorf("waiting are %s, want one", got)
					}
					p.kill()
					p = boot(t, s, wf)
					defer p.kill()
					send(t, approved, p, "o", "w", "")
					if got := result(t, wf.Handle(p, "o")); got != "vw" {
						t.Errorf("received %q, want each once", got)
					}
				})
			})
		}
	}
}
