package enginetest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// Replay runs workflows against each of the histories that the pattern, as of
// filepath.Match, names: files that engine.Engine.Export wrote. The test fails where
// today's code differs from the history; it names the file and the difference. No
// activity and no step is run. It also fails if the pattern matches no file. The payloads
// must be JSON: if your engine has another codec, call its Replay instead.
//
// Export the histories of a few runs in progress before you change the code of their
// workflow, and keep them beside the test. They contain your users' data: edit them,
// they are JSON.
func Replay(t *testing.T, pattern string, workflows ...engine.Definition) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err == nil && len(files) == 0 {
		err = errors.New("no file")
	}
	if err != nil {
		t.Fatalf("histories %q: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := replay(t, f, workflows); err != nil {
				t.Errorf("%s: %v%s", file, err, advice(err))
			}
		})
	}
}

// patience is the time limit for one history. A workflow function should take no time
// beside what the engine records.
const patience = time.Minute

func replay(t *testing.T, history io.Reader, workflows []engine.Definition) error {
	eng, err := engine.New(engine.Config{
		Storage:   new(memory.Store),
		Workflows: workflows,
		Name:      "enginetest",
		Logger:    slog.New(slog.DiscardHandler),

		Deployment: deployment,
	})
	if err != nil {
		return err
	}
	defer eng.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return eng.Replay(ctx, history)
}

// advice says how to fix a difference.
func advice(err error) string {
	var n *engine.NonDeterminismError
	var in *engine.InputChangedError
	switch {
	case errors.As(err, &n):
	case errors.As(err, &in):
		return "\nNo run is held for another input. But look whether each operation still is the one that has this outcome: where two\n" +
			"of one name have changed places, each gets the other one's. If the change was meant, export the history anew, or take\n" +
			"\"input\" out of the events of these operations."
	default:
		return ""
	}
	return "\nA run with such a history would be held where it is. Let the workflow do what it did for runs that have come\n" +
		"this far, or give the changed one another name and let the old ones end first."
}
