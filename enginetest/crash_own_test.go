package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// The engine gives a child its id, and the id is another one in each play. A child is the same
// if the same operation of the same run has started it.
func TestChildrenWithoutIDsAreCompared(t *testing.T) {
	const child, grandchild, detached = "the run of operation 1 of order-42", "the run of operation 2 of the run of operation 1 of order-42", "the run of operation 2 of order-42"
	found(t, everywhere(t, func(world *Recorder) Scenario {
		var kin *engine.Workflow[string, string]
		kin = &engine.Workflow[string, string]{Name: "kin", Func: func(run *engine.Run, in string) (string, error) {
			_, err := engine.Step(run, "ship", func(ctx context.Context) (string, error) {
				world.Effect(ctx, "shipped by "+run.ID())
				return "", nil
			})
			if in == "last" || err != nil {
				return "by " + run.ID(), err
			}
			return kin.Do(run, "last")
		}}
		s := ordering(simple(func(run *engine.Run) (string, error) {
			got, err := kin.Do(run, "first")
			if err != nil {
				return "", err
			}
			id, err := kin.Detach(run, "", "last")
			return got + " and " + id, err
		}))
		s.Workflows = append(s.Workflows, kin)
		s.MayRepeat = []string{"shipped by " + child, "shipped by " + grandchild, "shipped by " + detached}
		return s
	}))

	found(t, everywhere(t, func(*Recorder) Scenario {
		times := 0
		child := &engine.Workflow[string, string]{Name: "child", Func: func(run *engine.Run, _ string) (string, error) {
			times++
			err := run.Sleep(time.Hour)
			return fmt.Sprint("time ", times), err
		}}
		s := ordering(simple(func(run *engine.Run) (string, error) { return child.Do(run, "") }))
		s.Workflows = append(s.Workflows, child)
		return s
	}), "result of "+child+" differs:\n        here         \"time 2\"\n")
}

// While the call that ends the process is in progress, other runs continue, and the store records
// what becomes of them. So their effects happen.
func TestEffectsDuringTheLastCall(t *testing.T) {
	found(t, everywhere(t, func(world *Recorder) Scenario {
		mail := simple(func(run *engine.Run) (string, error) {
			return engine.Step(run, "mail", func(ctx context.Context) (string, error) {
				time.Sleep(time.Second)
				world.Effect(ctx, "mail sent")
				return "sent", nil
			})
		})
		return Scenario{
			Workflows: []engine.Definition{mail},
			MayRepeat: []string{"mail sent"},
			Open:      func(testing.TB) storage.Storage { return &slowFor{new(memory.Store), "slow"} },
			Drive: func(ctx context.Context, eng *engine.Engine) error {
				quick, err := mail.Start(ctx, eng, "quick", "")
				if err != nil {
					return err
				}
				if _, err = mail.Start(ctx, eng, "slow", ""); err == nil {
					_, err = quick.Result(ctx)
				}
				return err
			},
		}
	}))
}

// A slowFor needs two seconds for each commit to one workflow.
type slowFor struct {
	*memory.Store
	id string
}

func (s *slowFor) Commit(ctx context.Context, b storage.Batch) error {
	if slices.ContainsFunc(b.Ops, func(o storage.Op) bool {
		parts, err := storage.SplitKey(o.Key)
		return err == nil && len(parts) > 1 && parts[1] == s.id
	}) {
		time.Sleep(2 * time.Second)
	}
	return s.Store.Commit(ctx, b)
}

// The number of an attempt counts the processes that died, so it differs after a crash.
func TestNumbersOfAttemptsAreNotCompared(t *testing.T) {
	failing := func(tell func(err error) (string, error)) func(world *Recorder) Scenario {
		return func(world *Recorder) Scenario {
			charge := &activity.Activity[string, string]{
				Name:  "charge",
				Retry: activity.Retry{MaxAttempts: 1},
				Run: func(context.Context, string) (string, error) {
					return "", activity.Permanent(errors.New("card 17 declined"))
				},
			}
			return ordering(simple(func(run *engine.Run) (string, error) {
				_, err := charge.Do(run, "o")
				return tell(err)
			}))
		}
	}
	for name, tell := range map[string]func(err error) (string, error){
		"the error":           func(err error) (string, error) { return "", fmt.Errorf("order 7: %w", err) },
		"its text":            func(err error) (string, error) { return err.Error(), nil },
		"its number":          func(err error) (string, error) { return fmt.Sprint(err.(*activity.Error).Attempt), nil },
		"as one of the words": func(err error) (string, error) { return "", fmt.Errorf("%w, and order 1 is open", err) },
	} {
		t.Run(name, func(t *testing.T) { found(t, everywhere(t, failing(tell))) })
	}

	times := 0
	another := failing(func(err error) (string, error) {
		times++
		return "", fmt.Errorf("%w: call %d", err, 10+times)
	})
	found(t, everywhere(t, func(world *Recorder) Scenario {
		times = 0
		return another(world)
	}), "error of order-42 differs:\n", "call 12", "What a workflow returns must come from its input")
}

// The advice about an id that differs is for whoever has chosen it.
func TestIDOfAChildThatDiffers(t *testing.T) {
	plays := 0
	found(t, everywhere(t, func(*Recorder) Scenario {
		plays++
		n := plays
		child := &engine.Workflow[string, string]{Name: "child", Func: func(*engine.Run, string) (string, error) { return "", nil }}
		s := ordering(simple(func(run *engine.Run) (string, error) {
			return child.AsChild(engine.ChildOptions{ID: fmt.Sprint("child-", n)}).Do(run, "")
		}))
		s.Workflows = append(s.Workflows, child)
		return s
	}), "workflow child-1 is there only the first time.\n    The run of order-42 has chosen this id, in operation 1. Derive it from the run's input and id")
}

// A run that never ends is named like one that ends.
func TestChildThatNobodyAnswers(t *testing.T) {
	found(t, everywhere(t, func(*Recorder) Scenario {
		answer := &signal.Signal[string]{Name: "answer"}
		child := &engine.Workflow[string, string]{Name: "child", Func: func(run *engine.Run, _ string) (string, error) { return answer.Receive(run) }}
		s := ordering(simple(func(run *engine.Run) (string, error) { return child.Do(run, "") }))
		s.Workflows = append(s.Workflows, child)
		return s
	}), "the run of operation 1 of order-42 has not ended")
}
