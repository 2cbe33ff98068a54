package enginetest

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
)

// A test that waits for something that nobody does fails at once, and says what each run waits
// for and which function blocks.
func TestQuietTestsFail(t *testing.T) {
	for name, want := range map[string][]string{
		"TestWaitsForASignal": {
			"nothing can happen any more: the test waits, and no run has anything to do or a time to wait for.\n",
			"tour-1 (tour) waits for [receive where]\n",
			"engine: closed",
		},
		"TestWaitsForAFunction": {
			"tour-1 (tour) is running; stuck: the function has not called the engine for 8760h0m0s\n",
			"Functions that block on something outside the engine:\n",
			"broken.blocks at ", "quiet_test.go:",
		},
		"TestWaitsForAnActivity": {
			"tour-1 (tour) waits for [activity book until 2000-01-01T00:01:00Z, attempt 1 in progress; attempt 1 failed: timed out after 1m0s]; unresponsive: attempt 1 has not returned, although its timeout",
			"broken.blocks at ", "quiet_test.go:",
		},
		"TestWaitsForNobody": {
			"nothing can happen any more: the test waits, and no run has anything to do or a time to wait for. All runs have ended.\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			out, err := exec.Command("go", "test", "-count=1", "-timeout", "100s", "-run", name+"$", "./testdata/broken").CombinedOutput()
			if _, failed := err.(*exec.ExitError); !failed {
				t.Fatalf("go test: %v\n%s", err, out)
			}
			t.Logf("%v\n%s", time.Since(began), out)
			for _, w := range append(want, "--- FAIL: "+name) {
				if !strings.Contains(string(out), w) {
					t.Errorf("want %q in:\n%s", w, out)
				}
			}
		})
	}
}

// A test may sleep for decades, and so may a run.
func TestDecadesAreNotQuiet(t *testing.T) {
	nap := &engine.Workflow[time.Duration, string]{Name: "nap", Func: func(run *engine.Run, d time.Duration) (string, error) { return "", run.Sleep(d) }}
	Run(t, []engine.Definition{nap}, func(t *testing.T, eng *engine.Engine) {
		time.Sleep(90 * year)
		const long = 20*year + time.Hour
		h, err := nap.Start(t.Context(), eng, "nap", long)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := h.Result(t.Context()); err != nil || time.Since(began) != long {
			t.Errorf("%v after %v, want %v", err, time.Since(began), long)
		}
	})
}

// A run that sleeps for a day is parked, although the engine polls once a year: so each test of it
// is a test of its replay.
func TestNightsArePassedInTheStore(t *testing.T) {
	calls := 0
	nap := &engine.Workflow[string, string]{Name: "nap", Func: func(run *engine.Run, _ string) (string, error) {
		calls++
		return "", run.Sleep(24 * time.Hour)
	}}
	Run(t, []engine.Definition{nap}, func(t *testing.T, eng *engine.Engine) {
		began := time.Now()
		h, err := nap.Start(t.Context(), eng, "nap", "")
		if err == nil {
			_, err = h.Result(t.Context())
		}
		if err != nil || calls != 2 || time.Since(began) != 24*time.Hour {
			t.Errorf("%v after %v and %d calls of the function, want 24 h and 2", err, time.Since(began), calls)
		}
	})
}
