// Package broken has tests that fail: TestBrokenTests reads their messages.
package broken

import (
	"context"
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/enginetest"
)

func tour(run *engine.Run, n int) (string, error) {
	return engine.Step(run, "another step", func(context.Context) (string, error) {
		panic("a replay runs nothing")
	})
}

var tours = &engine.Workflow[int, string]{Name: "tour", Func: tour}

func TestReplay(t *testing.T) { enginetest.Replay(t, "../tour/*.history", tours) }

func TestReplayOfNothing(t *testing.T) { enginetest.Replay(t, "testdata/*.history", tours) }

func TestReplayOfAnythingElse(t *testing.T) { enginetest.Replay(t, "broken_test.go", tours) }

func TestCrashEverywhere(t *testing.T) {
	enginetest.CrashEverywhere(t, func(world *enginetest.Recorder) enginetest.Scenario {
		mail := &engine.Workflow[int, string]{Name: "mail", Func: func(run *engine.Run, n int) (string, error) {
			return engine.Step(run, "send", func(ctx context.Context) (string, error) {
				world.Effect(ctx, "mail sent")
				return "", nil
			})
		}}
		return enginetest.Scenario{
			Workflows: []engine.Definition{mail},
			Drive: func(ctx context.Context, eng *engine.Engine) error {
				_, err := mail.Start(ctx, eng, "mail-1", 1)
				return err
			},
		}
	})
}

func TestRunWithABadDefinition(t *testing.T) {
	enginetest.Run(t, []engine.Definition{&engine.Workflow[int, int]{}}, func(*testing.T, *engine.Engine) {})
}

func TestRunThatFails(t *testing.T) {
	enginetest.Run(t, nil, func(t *testing.T, eng *engine.Engine) { t.Fatal("the engine is closed all the same") })
}

// It is the last one: the bubble's panic ends the process.
func TestRunThatLeavesAGoroutine(t *testing.T) {
	enginetest.Run(t, nil, func(*testing.T, *engine.Engine) { go func() { select {} }() })
}
