package enginetest_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/enginetest"
	"github.com/weft-go/weft/signal"
)

var update = flag.Bool("update", false, "export the histories in testdata/tour anew")

var (
	where = &signal.Signal[string]{Name: "where"}
	book  = &activity.Activity[string, string]{Name: "book", Run: func(_ context.Context, place string) (string, error) {
		return "a bed in " + place, nil
	}}
	tour = &engine.Workflow[int, string]{Name: "tour", Func: func(run *engine.Run, days int) (string, error) {
		place, err := where.Receive(run)
		if err != nil {
			return "", err
		}
		bed, err := book.Do(run, place)
		if err != nil {
			return "", err
		}
		return bed, run.Sleep(time.Duration(days) * 24 * time.Hour)
	}}
)

// A workflow that waits in the queue of its Defaults is executed.
func TestRunServesQueues(t *testing.T) {
	queued := tour.With(engine.StartOptions{Queue: "tours"})
	enginetest.Run(t, []engine.Definition{queued}, func(t *testing.T, eng *engine.Engine) {
		h, err := queued.Start(t.Context(), eng, "tour-1", 90)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := where.Send(t.Context(), eng, "tour-1", "Lisbon", nil); err != nil {
			t.Fatal(err)
		}
		if got, err := h.Result(t.Context()); got != "a bed in Lisbon" || err != nil {
			t.Errorf("result %q, %v", got, err)
		}
	})
	enginetest.CrashEverywhere(t, func(*enginetest.Recorder) enginetest.Scenario {
		w := &engine.Workflow[string, string]{Name: "w", Defaults: engine.StartOptions{Queue: "one by one"}, Func: func(run *engine.Run, _ string) (string, error) {
			return "", run.Sleep(time.Hour)
		}}
		return enginetest.Scenario{
			Workflows: []engine.Definition{w},
			Queues:    []engine.Queue{{Name: "one by one", Concurrency: 1}},
			Drive: func(ctx context.Context, eng *engine.Engine) error {
				for _, id := range []string{"a", "b"} {
					if _, err := w.Start(ctx, eng, id, ""); err != nil {
						return err
					}
				}
				return nil
			},
		}
	})
}

// Months pass in no time, and the engine runs from the beginning to the end.
func TestRun(t *testing.T) {
	enginetest.Run(t, []engine.Definition{tour}, func(t *testing.T, eng *engine.Engine) {
		ctx := t.Context()
		began := time.Now()
		h, err := tour.Start(ctx, eng, "tour-1", 90)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		if _, err := where.Send(ctx, eng, "tour-1", "Lisbon", &signal.Options{ID: "click"}); err != nil {
			t.Fatal(err)
		}
		got, err := h.Result(ctx)
		if want := "a bed in Lisbon"; got != want || err != nil {
			t.Errorf("result %q, %v, want %q", got, err, want)
		}
		if days := time.Since(began).Hours() / 24; days != 91 {
			t.Errorf("%v days, want 91", days)
		}
		var history bytes.Buffer
		if err := eng.Export(ctx, "tour-1", &history); err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile("testdata/tour/ended.history", history.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestReplay(t *testing.T) { enginetest.Replay(t, "testdata/tour/*.history", tour) }

// The messages of failing tests: the tests of testdata/broken fail, each with its
// message.
func TestBrokenTests(t *testing.T) {
	out, err := exec.Command("go", "test", "-count=1", "./testdata/broken").CombinedOutput()
	if _, failed := err.(*exec.ExitError); !failed {
		t.Fatalf("go test: %v\n%s", err, out)
	}
	for _, want := range []string{
		"--- FAIL: TestReplay/ended.history",
		"ended.history: engine: replay of \"tour-1\": operation 1 was receive where and is now step another step (at broken/broken_test.go:",
		"was changed, added, removed or moved; what to do: https://",
		"A run with such a history would be held where it is.",
		"--- FAIL: TestReplayOfNothing",
		"histories \"testdata/*.history\": no file\n",
		"--- FAIL: TestReplayOfAnythingElse/broken_test.go",
		"broken_test.go: storage: corrupt",
		"--- FAIL: TestCrashEverywhere",
		"commit of checkpoint 2 of mail-1 (send settled), before it was written:\n",
		"\"mail sent\" happened 2 times, undisturbed once\n",
		" plays of ",
		"--- FAIL: TestRunWithABadDefinition",
		"Workflows[0].Name must be",
		"--- FAIL: TestRunThatFails",
		"the engine is closed all the same",
		"--- FAIL: TestRunThatLeavesAGoroutine",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("want %q in:\n%s", want, out)
		}
	}
}

// A Pinned workflow is tested like any other.
func TestPinnedWorkflow(t *testing.T) {
	trip := &engine.Workflow[string, string]{Name: "trip", Pinned: true, Func: func(run *engine.Run, place string) (string, error) {
		return book.Do(run, place)
	}}
	drive := func(ctx context.Context, eng *engine.Engine) error {
		h, err := trip.Start(ctx, eng, "trip-1", "Lisbon")
		if err != nil {
			return err
		}
		_, err = h.Result(ctx)
		return err
	}
	enginetest.Run(t, []engine.Definition{trip}, func(t *testing.T, eng *engine.Engine) {
		if err := drive(t.Context(), eng); err != nil {
			t.Error(err)
		}
	})
	enginetest.CrashEverywhere(t, func(*enginetest.Recorder) enginetest.Scenario {
		return enginetest.Scenario{Workflows: []engine.Definition{trip}, Drive: drive}
	})
	pinned := *tour
	pinned.Pinned = true
	enginetest.Replay(t, "testdata/tour/*.history", &pinned)
}
