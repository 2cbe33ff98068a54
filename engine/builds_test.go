package engine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/postgres"
)

// builderEnv has the orders of a process that drives runs as one build does, until it is
// told to stop by the end of its input.
const builderEnv = "WEFT_TEST_BUILDER"

// A builder is such a process, as it is told.
type builder struct{ URL, Deployment string }

// waits is a run that ends when it is told to, with the name of the build that ends it.
func waits(deployment string) *engine.Workflow[string, string] {
	return pinned("waits", func(run *engine.Run) (string, error) {
		_, err := yes.Receive(run)
		return deployment, err
	})
}

func (b builder) run() error {
	s, err := postgres.Open(ctx, b.URL, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	c := engine.Config{
		Storage:      s,
		Workflows:    []engine.Definition{waits(b.Deployment)},
		Logger:       quiet,
		ParkAfter:    -1,
		PollInterval: 50 * time.Millisecond,
		LeaseTTL:     3 * time.Second, // not lost on a slow machine
	}
	on(b.Deployment)(&c)
	eng, err := engine.New(c)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	go func() {
		defer stop()
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
	}()
	defer eng.Close()
	return eng.Run(running)
}

// begin starts the process. end stops it gently.
func (b builder) begin(ctx context.Context, t *testing.T) (process *exec.Cmd, end func()) {
	orders, err := json.Marshal(b)
	exe, e := os.Executable()
	if err = errors.Join(err, e); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), builderEnv+"="+string(orders))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("process of %s: %v", b.Deployment, err)
		}
	}
}

// A rolling deploy of real processes: runs stay on the build that began them, while it is
// killed too, and a rollback has new ones begin there again.
func TestRollingDeployOfProcesses(t *testing.T) {
	url := pgtest.URL(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s, err := postgres.Open(ctx, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := made(t, s, func(c *engine.Config) { c.PollInterval = 50 * time.Millisecond })
	w := waits("")
	until := func(id, what string, ok func(engine.Info) bool) {
		t.Helper()
		for {
			i, err := client.Describe(ctx, id)
			switch {
			case err != nil:
				t.Fatalf("%s until %s: %v", id, what, err)
			case ok(i):
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	begin := func(deployment string, ids ...string) {
		t.Helper()
		for _, id := range ids {
			start(t, w, client, id, "")
		}
		for _, id := range ids {
			until(id, "it is parked", func(i engine.Info) bool { return i.Status == checkpoint.StatusRunning && len(i.Waiting) > 0 })
			placed(t, client, id, deployment)
		}
	}
	finish := func(deployment string, ids ...string) {
		t.Helper()
		for _, id := range ids {
			if _, err := yes.Send(ctx, client, id, "go", &signal.Options{ID: "1"}); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range ids {
			if got, err := w.Handle(client, id).Result(ctx); got != deployment || err != nil {
				t.Errorf("%s was ended by %q, %v; want %s", id, got, err, deployment)
			}
		}
	}

	activate(t, client, "blue")
	blue, _ := builder{url, "blue"}.begin(ctx, t)
	begin("blue", "old 1", "old 2", "old 3")
	_, endGreen := builder{url, "green"}.begin(ctx, t)
	activate(t, client, "green")
	begin("green", "new 1", "new 2")
	finish("blue", "old 1")

	if err := blue.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = blue.Wait()
	if _, err := yes.Send(ctx, client, "old 2", "go", nil); err != nil {
		t.Fatal(err)
	}
	finish("green", "new 1")
	for _, id := range []string{"old 2", "old 3"} {
		until(id, "it is shown that nobody drives it", func(i engine.Info) bool { return heldFor(i, engine.ReasonUnregistered) })
	}
	_, endBlue := builder{url, "blue"}.begin(ctx, t)
	if err := client.Rollback(ctx, audit); err != nil {
		t.Fatal(err)
	}
	begin("blue", "again 1")
	finish("blue", "old 3", "again 1")
	if got, err := w.Handle(client, "old 2").Result(ctx); got != "blue" || err != nil {
		t.Errorf("old 2 was ended by %q, %v", got, err)
	}
	endBlue()
	finish("green", "new 2")
	endGreen()
	infos, err := client.Engines(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		if i.Alive || i.Runs > 0 {
			t.Errorf("in the end: %+v", i)
		}
	}
}
