package pebble_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/torture"
)

// TestEngine runs tests of the engine, of the ledger and of the control plane on this store: those with a subtest for
// bbolt, and some scenarios with a fault at every 101st call to the store. With WEFT_TORTURE it runs all such tests of the
// engine, and plays every scenario with a fault at each call.
//
// They are in another module, which does not know pebble. So the go command is given a workspace of
// both modules, and an overlay in which the package storage/bolt opens stores of pebble: whatever
// runs on bbolt, runs on pebble here. They run without the race detector, which the other tests of
// this package have.
func TestEngine(t *testing.T) {
	torture.Slow(t)
	at := newElsewhere(t)
	scenarios, long := "(order|signals|purge|labels)", os.Getenv("WEFT_TORTURE") != ""
	if long {
		scenarios = ""
	}
	at.run(t, "test", "-count=1", "-timeout=2h", "-v", "-run=^("+strings.Join(some, "|")+")$/^bolt", "./engine", "./idempotency", "./control")
	at.run(t, "test", "-count=1", "-timeout=2h", "-v", "-run=^TestEveryStoreCallMayFail$/^bolt/"+scenarios, "./engine")
	if long {
		t.Setenv("WEFT_TORTURE", "") // tests without a subtest run, too, and need not take hours
		at.run(t, "test", "-count=1", "-timeout=2h", "-v", "-run=/^bolt", "-skip="+notHere, "./engine")
	}
}

// notHere is the tests of the engine that are left out: those with a subtest for bbolt that need a store in one file, which
// have counterparts in this package; one whose other subtests must run, too; and TestSimulation, which is on the store in memory.
const notHere = "^(TestDamagedFileNeverGivesAnotherPayload|TestEngineEndsWithTheFilesOfItsStore|TestErrorsOfAFullDisk|TestImageOfADiskInUse|" +
	"TestWhatALaterReleaseWroteIsKept|TestSimulation)$"

var some = []string{
	"Test64StartsAtOnceAreOne", "TestAnOperatorDecidesWhatTimedOut", "TestCancelMeetsTheEnd", "TestEachWindowAndEachAnswer",
	"TestEqualSendsAtOnce", "TestFaultsOnRealStores", "TestKeyAndContentAreOfOneMoment", "TestPageOfTheLongestNames",
	"TestProgressInFiles", "TestReadingRacesWithPurge", "TestReadingWhatIsPurgedMeanwhile", "TestResolve.*",
	"TestRestoredStoresRepeatNoToken", "TestRetryOfWhatIsPurgedMeanwhile", "TestRollingDeployOnFiles", "TestSenderDies",
	"TestSignalClearedWhileItIsReceived", "TestSimulationOnStores", "TestStoreOfANewerReleaseIsRefused", "TestTerminateWhatNeverRests",
	"TestWhatTimedOutIsRecordedAsThat",
}

// TestCrash kills the program of examples/crash, which runs on this store.
func TestCrash(t *testing.T) {
	torture.Slow(t)
	kills := "10"
	if n := os.Getenv("WEFT_KILLS"); n != "" {
		kills = n
	}
	at := newElsewhere(t)
	program := filepath.Join(t.TempDir(), "crash")
	at.run(t, "build", "-o", program, "./examples/crash")
	out, err := exec.CommandContext(t.Context(), program, "-store", "bolt", "-kills", kills).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// An elsewhere is the root of the repository, with this store in the place of another.
type elsewhere struct{ root, work, overlay string }

func newElsewhere(t *testing.T) elsewhere {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	e := elsewhere{root: filepath.Dir(filepath.Dir(here))}
	files, err := filepath.Glob(filepath.Join(e.root, "storage", "bolt", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("got %v and error %v, want the files of storage/bolt", files, err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for _, f := range files {
		replace[f] = "" // there is no such file
	}
	replace[filepath.Join(e.root, "storage", "bolt", "bolt.go")] = filepath.Join(here, "testdata", "bolt.go")
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	e.work, e.overlay = filepath.Join(dir, "go.work"), filepath.Join(dir, "overlay.json")
	for name, data := range map[string]string{
		e.work:    "go 1.26.0\n\nuse (\n\t" + e.root + "\n\t" + here + "\n)\n",
		e.overlay: string(overlay),
	} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// run runs a command of go. If it runs tests, one of them must have been there.
func (e elsewhere) run(t *testing.T, command string, args ...string) {
	t.Helper()
	flags := []string{command, "-overlay=" + e.overlay}
	c := exec.CommandContext(t.Context(), "go", append(flags, args...)...)
	c.Dir = e.root
	c.Env = append(os.Environ(), "GOWORK="+e.work, "GOFLAGS=-mod=readonly")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", c.Args, err, out)
		return
	}
	passed := regexp.MustCompile(`(?m)^ *--- PASS: .*/bolt.*$`).FindAllString(string(out), -1)
	t.Logf("%v: %d tests on this store\n%s", c.Args, len(passed), strings.Join(passed, "\n"))
	if command == "test" && len(passed) == 0 {
		t.Errorf("%v: got no test that ran on this store\n%s", c.Args, out)
	}
}
