// Needs shows that a release before leaves alone what it would misunderstand.
//
//	needs -before FILE -now FILE
//
// The files are testdata/releases/execute, built with the release before and with this one. On a store, needs
// starts a run for each ability that the release before does not have, and one that needs nothing new. An
// engine of the release before executes that one only: it neither executes nor changes the others, and refuses
// to terminate them. Then an engine of this release finishes all of them.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// deployment is that of the engines of both releases.
const deployment = "shop-7"

// plain is the id and the input of the run that needs nothing new.
const plain = "plain"

// uses are starts of runs that need an ability. A release that adds one adds a row here.
var uses = []struct {
	ability string
	start   engine.StartRequest
	then    func(ctx context.Context, eng *engine.Engine, id string) error // after the start; nil: nothing
}{
	{"deployment", engine.StartRequest{ID: "on-a-deployment", Options: engine.StartOptions{Deployment: deployment}}, nil},
	{"namespace", engine.StartRequest{ID: "@acme/prod/order-1"}, nil},
	{"protected", engine.StartRequest{ID: "protected"}, func(ctx context.Context, eng *engine.Engine, id string) error {
		return eng.Protect(ctx, id, engine.Actor{Name: "law", Reason: "case 7"})
	}},
	{"updates", engine.StartRequest{ID: "updated"}, func(ctx context.Context, eng *engine.Engine, id string) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := eng.CallUpdate(ctx, &engine.UpdateRequest{WorkflowID: id, Update: "nobody handles it"}, nil)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil // it waits
		}
		return fmt.Errorf("update: %w", err)
	}},
}

func main() {
	before := flag.String("before", "", "testdata/releases/execute of the release before")
	now := flag.String("now", "", "and of this release")
	flag.Parse()
	if err := run(context.Background(), *before, *now); err != nil {
		fmt.Fprintln(os.Stderr, "needs:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, before, now string) error {
	dir, err := os.MkdirTemp("", "weft-needs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, stop, err := pgtest.Launch()
	if err != nil {
		return err
	}
	defer stop()
	for _, at := range []string{"sqlite:" + filepath.Join(dir, "weft.db"), server.URL("postgres")} {
		kind, _, _ := strings.Cut(at, ":")
		if err := on(ctx, at, before, now); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		fmt.Printf("%s: the release before left %d runs alone, and this one finished them\n", kind, len(uses))
	}
	return nil
}

// on does all of it on one store.
func on(ctx context.Context, at, before, now string) error {
	first, err := launch(before, at) // whose store it is: a file of SQLite that this release makes has another table
	if err != nil {
		return err
	}
	defer first.kill()
	if err := first.stop(); err != nil {
		return fmt.Errorf("the release before makes the store: %w", err)
	}
	made, err := start(ctx, at)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	old, err := launch(before, at)
	if err != nil {
		return err
	}
	defer old.kill()
	if err := old.finishes(plain, plain); err != nil {
		return fmt.Errorf("the release before: %w", err)
	}
	time.Sleep(time.Second) // in which it looks for work fifty times
	for _, u := range uses {
		if answer := old.ask("terminate " + u.start.ID); !strings.Contains(answer, "only a newer release knows") {
			return fmt.Errorf("the release before has terminated the run with the need %s: %s", u.ability, answer)
		}
	}
	if err := old.stop(); err != nil {
		return fmt.Errorf("the release before: %w", err)
	}
	for _, article := range old.executed {
		if article != plain {
			return fmt.Errorf("the release before has executed the run with the need %s, or its child", article)
		}
	}
	left, err := records(ctx, at)
	if err != nil {
		return err
	}
	for i, u := range uses {
		if !bytes.Equal(made[i], left[i]) {
			return fmt.Errorf("the release before has changed the run with the need %s", u.ability)
		}
	}

	this, err := launch(now, at)
	if err != nil {
		return err
	}
	defer this.kill()
	for _, u := range uses {
		if err := this.finishes(u.start.ID, u.ability); err != nil {
			return fmt.Errorf("this release, and the run with the need %s: %w", u.ability, err)
		}
	}
	return this.stop()
}

// start starts all runs, by an engine of this release that does not run, and returns their records.
func start(ctx context.Context, at string) ([][]byte, error) {
	err := with(ctx, at, func(s storage.Storage) error {
		eng, err := engine.New(engine.Config{Storage: s, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer eng.Close()
		all := []engine.StartRequest{{ID: plain, Input: plain}}
		for _, u := range uses {
			u.start.Input = u.ability // by which an execution is known
			all = append(all, u.start)
		}
		for _, r := range all {
			r.Workflow = "order"
			if _, err := eng.StartWorkflow(ctx, &r); err != nil {
				return err
			}
		}
		for _, u := range uses {
			if u.then == nil {
				continue
			}
			if err := u.then(ctx, eng, u.start.ID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return records(ctx, at)
}

// records returns the records of the runs of uses.
func records(ctx context.Context, at string) (all [][]byte, err error) {
	err = with(ctx, at, func(s storage.Storage) error {
		for _, u := range uses {
			value, err := s.Get(ctx, keys.Workflow(u.start.ID))
			if err != nil {
				return err
			}
			all = append(all, value)
		}
		return nil
	})
	return all, err
}

// with opens the store while f is called.
func with(ctx context.Context, at string, f func(storage.Storage) error) (err error) {
	var s storage.Storage
	if file, ok := strings.CutPrefix(at, "sqlite:"); ok {
		s, err = sqlite.Open(file, nil)
	} else {
		s, err = postgres.Open(ctx, at, nil)
	}
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Close())
}

// An executor is an engine in another process.
type executor struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	answers  chan string
	executed []string // inputs, complete after stop
}

func launch(program, at string) (*executor, error) {
	x := &executor{cmd: exec.Command(program, "-store", at, "-deployment", deployment), answers: make(chan string)}
	x.cmd.Stderr = os.Stderr
	out, err := x.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if x.in, err = x.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := x.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(x.answers)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if article, ok := strings.CutPrefix(lines.Text(), "executes "); ok {
				x.executed = append(x.executed, article)
				continue
			}
			x.answers <- lines.Text()
		}
	}()
	return x, nil
}

// ask has the process do something, and returns what it says when that is done.
func (x *executor) ask(line string) string {
	if _, err := fmt.Fprintln(x.in, line); err != nil {
		return err.Error()
	}
	select {
	case answer := <-x.answers:
		return answer
	case <-time.After(time.Minute):
		return "nothing within a minute"
	}
}

// finishes waits until the process has the result of a run.
func (x *executor) finishes(id, article string) error {
	if answer := x.ask("result " + id); !strings.HasSuffix(answer, " a parcel of "+article+" <nil>") {
		return fmt.Errorf("the result of %q: %s", id, answer)
	}
	return nil
}

// stop ends the process, which has nothing to do.
func (x *executor) stop() error {
	x.in.Close()
	for answer := range x.answers {
		return fmt.Errorf("it says %s", answer)
	}
	return x.cmd.Wait()
}

func (x *executor) kill() { _ = x.cmd.Process.Kill() }
