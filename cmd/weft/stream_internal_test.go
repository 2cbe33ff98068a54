package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/answers"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/stream"
)

// A stream is printed as it comes, until it ends: from the store and over a control plane alike.
func TestStreamIsPrinted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.db")
	s, err := sqlite.Open(file, &sqlite.Options{Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	words := &stream.Stream[string]{Name: "words"}
	first, second := make(chan bool), make(chan bool)
	tell := &activity.Activity[int, int]{Name: "tell", Retry: activity.Retry{MaxAttempts: 2, Backoff: 1}, Run: func(ctx context.Context, _ int) (int, error) {
		w := words.Writer(ctx)
		if activity.InfoFrom(ctx).Attempt == 1 {
			return 0, errors.Join(w.Write("It\nwill"), w.Flush(), errors.New("cut off"))
		}
		<-first
		err := errors.Join(w.Write("rain."), w.Flush())
		<-second
		return 0, err
	}}
	chat := &engine.Workflow[int, int]{Name: "chat", Func: func(run *engine.Run, n int) (int, error) { return tell.Do(run, n) }}
	eng, err := engine.New(engine.Config{Storage: s, Workflows: []engine.Definition{chat}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- eng.Run(ctx) }()
	defer func() { stop(); <-ran }()
	const secret = "weft_sk_abcdefghijklmnopqrstuvwxyz"
	p, err := control.New(control.Config{Engine: eng, Keys: []control.Key{{ID: "k", Secret: secret, Scopes: []string{"runs:read"}}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(answers.Handler(p))
	defer func() { http.DefaultClient.CloseIdleConnections(); p.Close(); server.Close() }()
	t.Setenv("WEFT_KEY", secret)
	if _, err := chat.Start(ctx, eng, "chat-7", 0); err != nil {
		t.Fatal(err)
	}

	at := plane{URL: server.URL}
	verbs := map[string]func(from int64) interface{ Run(*env) error }{
		"the store": func(from int64) interface{ Run(*env) error } {
			return &readStream{ID: "chat-7", streaming: streaming{"words", from}}
		},
		"a control plane": func(from int64) interface{ Run(*env) error } {
			return &runsStream{oneRun{at, "chat-7"}, streaming{"words", from}}
		},
	}
	lines := map[string]*bufio.Scanner{}
	ended := make(chan error, 2)
	for what, verb := range verbs {
		r, w := io.Pipe()
		lines[what] = bufio.NewScanner(r)
		go func() {
			e := &env{Context: ctx, command: command{Store: "sqlite:" + file}, out: bufio.NewWriter(w)}
			err := verb(0).Run(e)
			w.Close()
			ended <- err
		}()
	}
	next := func(want string) {
		t.Helper()
		for what, l := range lines {
			l.Scan()
			if !regexp.MustCompile(`^\S+ \S+Z  ` + want + `$`).MatchString(l.Text()) {
				t.Errorf("%s: printed %q, want %s", what, l.Text(), want)
			}
		}
	}
	next(`0  1  "It\\nwill"`)
	close(first)
	next(`1  1  attempt 2: "rain\."`) // while the activity still runs
	close(second)
	for what, l := range lines {
		if err := <-ended; err != nil || l.Scan() {
			t.Errorf("%s: after the end: %q, %v", what, l.Text(), err)
		}
	}
	for what, verb := range verbs {
		var out strings.Builder
		e := &env{Context: ctx, command: command{Store: "sqlite:" + file, JSON: true}, out: bufio.NewWriter(&out)}
		if err := verb(-1).Run(e); err != nil || !strings.HasPrefix(out.String(), `{"index":1,`) || !strings.HasSuffix(out.String(), `"operation":"1","attempt":2,"value":"rain."}`+"\n") {
			t.Errorf("%s: %s, %v", what, &out, err)
		}
	}
	e := &env{Context: ctx, command: command{Store: "sqlite:" + file}, out: bufio.NewWriter(new(strings.Builder))}
	if err := (&readStream{ID: "gone", streaming: streaming{Name: "words"}}).Run(e); !errors.Is(err, weft.ErrNotFound) {
		t.Errorf("a stream of no workflow: %v", err)
	}
}
