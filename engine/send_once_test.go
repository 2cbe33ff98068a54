package engine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// atOnce is how many send one signal at the same time.
const atOnce = 64

func onceRounds(usual int) int { return torture.Rounds(1000, usual, usual/5) }

// sendAtOnce sends the signal evt of a round n times at the same time.
func sendAtOnce(to signal.Sender, round string, n int) ([]signal.Accepted, error) {
	answers, errs := make([]signal.Accepted, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			a, err := approved.Send(ctx, to, round, "v", &signal.Options{ID: "evt"})
			answers[i], errs[i] = canonical(a), err
		})
	}
	wg.Wait()
	return answers, errors.Join(errs...)
}

// acceptedOnce checks what came of a round: equal answers, and one delivery.
func acceptedOnce(t *testing.T, e *engine.Engine, round string, answers []signal.Accepted) {
	t.Helper()
	want := signal.Accepted{
		Accepted: true, WorkflowID: round, SignalName: "approved", SignalID: "evt",
		AcceptedAt: answers[0].AcceptedAt, SignalStorageKey: "sig:" + round + ":approved:evt",
	}
	if len(answers) != atOnce {
		t.Errorf("%s: %d answers, want %d", round, len(answers), atOnce)
	}
	for i, a := range answers {
		if a != want || a.AcceptedAt.IsZero() {
			t.Errorf("%s: answer %d is %+v, want %+v", round, i, a, want)
		}
	}
	if got := strings.Join(signalsOf(t, e, round), " "); got != "approved/evt" {
		t.Errorf("%s: waiting are %q, want one", round, got)
	}
}

// SIG-12, SIG-32, SIG-33, SIG-37, SIG-38: of 64 equal sends at the same time, over
// two engines, one is delivered, and all have the same canonical result.
func TestEqualSendsAtOnce(t *testing.T) {
	for name, open := range map[string]func(path string) (storage.Storage, error){
		"memory": func(string) (storage.Storage, error) { return new(memory.Store), nil },
		"sqlite": func(path string) (storage.Storage, error) { return sqlite.Open(path, nil) },
		"bolt":   func(path string) (storage.Storage, error) { return bolt.Open(path, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := open(filepath.Join(t.TempDir(), "store"))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			a, b := made(t, s), made(t, s)
			defer a.Close()
			defer b.Close()
			for i := range onceRounds(200) {
				round := fmt.Sprint("round-", i)
				start(t, receiving(1), a, round, "")
				var others []signal.Accepted
				var failed error
				var wg sync.WaitGroup
				wg.Go(func() { others, failed = sendAtOnce(b, round, atOnce/2) })
				answers, err := sendAtOnce(a, round, atOnce/2)
				wg.Wait()
				if err := errors.Join(err, failed); err != nil {
					t.Fatal(err)
				}
				acceptedOnce(t, a, round, append(answers, others...))
			}
		})
	}
}

// senderEnv has the URL of the store of a process that only sends.
const senderEnv = "WEFT_TEST_SENDER"

// sendForOthers is that process: it reads rounds, and writes what its sends were
// answered.
func sendForOthers(url string) error {
	s, err := postgres.Open(context.Background(), url, &postgres.Options{NoListen: true})
	if err != nil {
		return err
	}
	defer s.Close()
	e, err := engine.New(engine.Config{Storage: s, Name: "sender", Logger: quiet})
	if err != nil {
		return err
	}
	defer e.Close()
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		answers, err := sendAtOnce(e, in.Text(), atOnce/2)
		if err != nil {
			return err
		}
		if err := out.Encode(answers); err != nil {
			return err
		}
	}
	return nil
}

// The same from two processes on PostgreSQL, and then each is received once.
// Interleaving 1, SIG-38, SIG-53
func TestEqualSendsOfTwoProcesses(t *testing.T) {
	url := pgtest.URL(t)
	s, err := postgres.Open(ctx, url, &postgres.Options{NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := made(t, s)
	defer client.Close()

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.CommandContext(t.Context(), exe)
	other.Env = append(os.Environ(), senderEnv+"="+url)
	other.Stderr = os.Stderr
	in, err1 := other.StdinPipe()
	out, err2 := other.StdoutPipe()
	if err := errors.Join(err1, err2, other.Start()); err != nil {
		t.Fatal(err)
	}
	said := json.NewDecoder(out)
	wf := receiving(1)
	rounds := onceRounds(100)
	for i := range rounds {
		round := fmt.Sprint("round-", i)
		start(t, wf, client, round, "")
		if _, err := io.WriteString(in, round+"\n"); err != nil {
			t.Fatal(err)
		}
		answers, err := sendAtOnce(client, round, atOnce/2)
		if err != nil {
			t.Fatal(err)
		}
		var others []signal.Accepted
		if err := said.Decode(&others); err != nil {
			t.Fatal(err)
		}
		acceptedOnce(t, client, round, append(answers, others...))
		if t.Failed() {
			break
		}
	}
	if err := errors.Join(in.Close(), other.Wait()); err != nil {
		t.Error(err)
	}
	p := boot(t, s, wf)
	for i := range rounds {
		if got := result(t, wf.Handle(p, fmt.Sprint("round-", i))); got != "v" {
			t.Errorf("round %d: received %q, want one", i, got)
		}
	}
}
