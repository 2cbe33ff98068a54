// Needs shows that a release before leaves alone what it would misunderstand.
//
//	needs -before FILE -keys-before DIR -keys DIR -rounds N
//
// The file is testdata/releases/execute, built with the release before. On a store, needs starts a run for each
// ability that the release before does not have, and one that needs nothing new. An engine of the release before
// executes that one only: it neither executes nor changes the others, and refuses to terminate them. Then an
// engine of this release finishes all of them.
//
// Then both releases alternate on a store, with a kill at the end of each turn: schedules fire, updates and bulk
// operations are in progress, delayed workflows wait for their times. After each turn of the release before, the
// records of all families of keys that it does not have are as they were before, byte for byte. These families are
// those that package keys has in its one folder and not in the other.
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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/stream"
	"github.com/weft-go/weft/testdata/releases/shop"
)

// deployment is that of the engines of both releases.
const deployment = "shop-7"

const (
	plain = "plain" // the id and the input of the run that needs nothing new
	later = "later"

	// delay is that of the run that begins later. On a busy machine, its start takes a while too.
	delay = 5 * time.Second
)

// A use is the start of a run that needs an ability.
type use struct {
	ability string
	start   engine.StartRequest
	waits   bool                                                           // it is executed until it waits: it needs the ability by its code, or by then
	then    func(ctx context.Context, eng *engine.Engine, id string) error // after that, by an engine that executes nothing; nil: nothing
}

// uses has a row for each ability. A release that adds one adds a row here.
func uses() []use {
	return []use{
		{"deployment", engine.StartRequest{ID: "on-a-deployment", Options: engine.StartOptions{Deployment: deployment}}, false, nil},
		{"namespace", engine.StartRequest{ID: "@acme/prod/order-1"}, false, nil},
		{"delay", engine.StartRequest{ID: later}, false, nil}, // its time is set when it is started
		{"protected", engine.StartRequest{ID: "protected"}, false, func(ctx context.Context, eng *engine.Engine, id string) error {
			return eng.Protect(ctx, id, engine.Actor{Name: "law", Reason: "case 7"})
		}},
		{"updates", engine.StartRequest{ID: "updated"}, false, func(ctx context.Context, eng *engine.Engine, id string) error {
			same := "update"
			for began := time.Now(); ; {
				short, cancel := context.WithTimeout(ctx, time.Second)
				err := eng.CallUpdate(short, &engine.UpdateRequest{WorkflowID: id, Update: "nobody handles it", ID: &same}, nil)
				cancel()
				i, ok := errors.AsType[*engine.InterruptedError](err)
				switch {
				case !ok || !errors.Is(err, context.DeadlineExceeded):
					return fmt.Errorf("update: %w", err)
				case strings.HasPrefix(i.WaitedFor, "the run to accept it"):
					return nil // it waits
				case time.Since(began) > time.Minute: // until then it is stored, on a busy machine too
					return fmt.Errorf("update: %w", err)
				}
			}
		}},
		{"versions", engine.StartRequest{ID: "versioned"}, true, nil},
		{"lives", engine.StartRequest{ID: "continued"}, true, nil},
		{"hooks", engine.StartRequest{ID: "hooked"}, true, nil},
		{"streams", engine.StartRequest{ID: "streamed"}, true, nil},
		{"resets", engine.StartRequest{ID: "reset"}, true, func(ctx context.Context, eng *engine.Engine, id string) error {
			return eng.Reset(ctx, id, "", engine.Actor{Name: "kim", Reason: "a bug is mended"})
		}},
	}
}

var (
	proceed = &signal.Signal[bool]{Name: "proceed"}
	paid    = &signal.Hook[bool]{Name: "paid"}
	words   = &stream.Stream[string]{Name: "words"}
	speak   = &activity.Activity[string, bool]{Name: "speak", Run: func(ctx context.Context, word string) (bool, error) {
		return true, words.Writer(ctx).Write(word)
	}}

	// order is that of testdata/releases/execute, with code that needs abilities.
	order = &engine.Workflow[string, string]{Name: "order", Versions: map[string]int{"wrapping": 1}, Func: func(run *engine.Run, article string) (string, error) {
		switch article {
		case "versions":
			run.Version("wrapping")
		case "lives":
			return "", engine.ContinueAsNew(run, "the next life")
		case "the next life":
			article = "lives"
		case "hooks":
			if _, err := paid.Open(run, nil); err != nil {
				return "", err
			}
		case "streams":
			if _, err := speak.Do(run, "a word"); err != nil {
				return "", err
			}
		case "resets":
		default:
			return parcel.Do(run, article)
		}
		if _, err := proceed.Receive(run); err != nil {
			return "", err
		}
		return parcel.Do(run, article)
	}}
	parcel = &engine.Workflow[string, string]{Name: "parcel", Func: func(_ *engine.Run, article string) (string, error) {
		return "a parcel of " + article, nil
	}}
)

func main() {
	if os.Getenv(todayEnv) != "" {
		os.Exit(turn(os.Stdin))
	}
	before := flag.String("before", "", "testdata/releases/execute of the release before")
	keysBefore := flag.String("keys-before", "", "internal/keys of the release before")
	keysNow := flag.String("keys", "internal/keys", "internal/keys of this release")
	rounds := flag.Int("rounds", 12, "turns of each release")
	flag.Parse()
	fs, err := added(*keysBefore, *keysNow)
	if err == nil {
		err = run(context.Background(), *before, fs, *rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "needs:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, before string, fs families, rounds int) error {
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
	stores := []string{"sqlite:" + filepath.Join(dir, "weft.db"), "bolt:" + filepath.Join(dir, "weft.bolt"), server.URL("postgres")}
	for _, at := range stores {
		kind, _, _ := strings.Cut(at, ":")
		if err := on(ctx, at, before); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		fmt.Printf("%s: the release before left %d runs alone, and this one finished them\n", kind, len(uses()))
	}
	// At once, because most of it is a minute's wait.
	errs := make([]error, len(stores))
	var all sync.WaitGroup
	for i, at := range stores {
		all.Go(func() {
			kind, _, _ := strings.Cut(at, ":")
			if err := alternate(ctx, at, before, fs, rounds); err != nil {
				errs[i] = fmt.Errorf("%s: %w", kind, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// on does all of it on one store.
func on(ctx context.Context, at, before string) error {
	first, err := launch(before, at) // whose store it is: a file of SQLite that this release makes has another table
	if err != nil {
		return err
	}
	defer first.kill()
	if err := first.stop(); err != nil {
		return fmt.Errorf("the release before makes the store: %w", err)
	}
	uses := uses()
	made, err := start(ctx, at, uses)
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
	left, err := records(ctx, at, uses)
	if err != nil {
		return err
	}
	for i, u := range uses {
		if !bytes.Equal(made[i], left[i]) {
			return fmt.Errorf("the release before has changed the run with the need %s", u.ability)
		}
	}

	if err := with(ctx, at, func(s storage.Storage) error { return finish(ctx, s, uses) }); err != nil {
		return fmt.Errorf("this release: %w", err)
	}
	return nil
}

// start starts all runs with an engine of this release. It executes those only that are to wait. It returns the
// records of all.
func start(ctx context.Context, at string, uses []use) ([][]byte, error) {
	begin := func(eng *engine.Engine, r engine.StartRequest, article string) error {
		r.Workflow, r.Input = "order", article // by which an execution is known
		if r.ID == later {
			r.Options.StartAt = time.Now().Add(delay)
		}
		_, err := eng.StartWorkflow(ctx, &r)
		return err
	}
	err := with(ctx, at, func(s storage.Storage) error {
		return executing(ctx, s, func(eng *engine.Engine) error {
			for _, u := range uses {
				if !u.waits {
					continue
				}
				if err := begin(eng, u.start, u.ability); err != nil {
					return err
				}
				if err := untilItWaits(ctx, eng, u.start.ID); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	err = with(ctx, at, func(s storage.Storage) error {
		eng, err := engine.New(config(s))
		if err != nil {
			return err
		}
		defer eng.Close()
		if err := begin(eng, engine.StartRequest{ID: plain}, plain); err != nil {
			return err
		}
		for _, u := range uses {
			if !u.waits {
				if err := begin(eng, u.start, u.ability); err != nil {
					return err
				}
			}
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
	return records(ctx, at, uses)
}

// untilItWaits waits until a run waits for the signal.
func untilItWaits(ctx context.Context, eng *engine.Engine, id string) error {
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
		i, err := eng.Describe(ctx, id)
		if err != nil {
			return err
		}
		if slices.Contains(i.Waiting, "receive "+proceed.Name) {
			return nil
		}
	}
	return fmt.Errorf("%s does not wait for its signal", id)
}

// finish executes all runs to their ends.
func finish(ctx context.Context, s storage.Storage, uses []use) error {
	return executing(ctx, s, func(eng *engine.Engine) error {
		for _, u := range uses {
			if u.waits {
				if _, err := proceed.Send(ctx, eng, u.start.ID, true, nil); err != nil {
					return err
				}
			}
			result, err := order.Handle(eng, u.start.ID).Result(ctx)
			if err != nil || result != "a parcel of "+u.ability {
				return fmt.Errorf("the result of the run with the need %s: %q, %v", u.ability, result, err)
			}
		}
		return nil
	})
}

func config(s storage.Storage) engine.Config {
	return engine.Config{
		Storage: s, Workflows: []engine.Definition{order, parcel}, Deployment: deployment, PollInterval: 20 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	}
}

// executing runs an engine while f is called.
func executing(ctx context.Context, s storage.Storage, f func(*engine.Engine) error) error {
	eng, err := engine.New(config(s))
	if err != nil {
		return err
	}
	defer eng.Close()
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	err = f(eng)
	stop()
	return errors.Join(err, <-ended)
}

// records returns the records of the runs of uses.
func records(ctx context.Context, at string, uses []use) (all [][]byte, err error) {
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
func with(ctx context.Context, at string, f func(storage.Storage) error) error {
	s, err := shop.Open(ctx, at)
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

// die kills the process, and waits until it has died.
func (x *executor) die() {
	x.kill()
	for range x.answers {
	}
	_ = x.cmd.Wait()
}
