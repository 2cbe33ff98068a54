package main_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
)

// A run that is bound to a deployment is not said to be without an engine while a service that the command cannot see
// may execute it.
func TestRunOfADeploymentBesideItsService(t *testing.T) {
	weft := program(t)
	k := newKind(t, "sqlite")
	s := shell{t: t, program: weft, store: k.store}
	const none = `no engine of deployment "blue" is alive that has it`
	k.with(t, func(store storage.Storage) {
		pinned := *patient
		pinned.Pinned = true
		eng, err := engine.New(engine.Config{
			Storage: store, Workflows: []engine.Definition{&pinned}, Deployment: "blue", PollInterval: 20 * time.Millisecond,
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer eng.Close()
		if err := eng.Activate(t.Context(), "blue", engine.Actor{Name: "ann", Reason: "release"}); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- eng.Run(t.Context()) }()
		if _, err := pinned.Start(t.Context(), eng, "bound", ""); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			i, err := eng.Describe(t.Context(), "bound")
			if err == nil && i.Owner != "" && i.Deployment == "blue" {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the engine does not execute it: %+v, %v", i, err)
			}
		}
		for _, args := range [][]string{{"describe", "bound"}, {"list"}, {"list", "--json"}} {
			if out := s.done(args...); strings.Contains(out, none) || strings.Contains(out, "unregistered") {
				t.Errorf("weft %q beside the service: %s", args, out)
			}
		}
		if out := s.done("list", "--attention"); strings.Contains(out, "bound") {
			t.Errorf("it is listed among those that need an operator: %s", out)
		}
		if err := eng.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, engine.ErrClosed) {
			t.Fatal(err)
		}
	})
	if out := s.done("describe", "bound"); !strings.Contains(out, none) {
		t.Errorf("without the service: %s", out)
	}
}
