package ids_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/torture"
)

// TestMain also is the process that mints ids for TestProcessesMintNoIDTwice.
func TestMain(m *testing.M) {
	if n := os.Getenv("IDS_MINT"); n != "" {
		var count int
		fmt.Sscan(n, &count)
		var s ids.Source
		w := bufio.NewWriter(os.Stdout)
		for range count {
			fmt.Fprintln(w, s.New(ids.Run, time.Now()))
		}
		w.Flush()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var form = regexp.MustCompile(`^[a-z]+_[0-9A-HJKMNP-TV-Z]{26}$`)

// WLD-1, WLD-2, WLD-5: an id is one of seven prefixes and a ULID.
func TestAnIDIsAPrefixAndAULID(t *testing.T) {
	var s ids.Source
	for p, want := range map[ids.Prefix]string{ids.Run: "wrun_", ids.Step: "step_", ids.Event: "evnt_", ids.Hook: "hook_", ids.Message: "msg_", ids.Chunk: "chnk_", ids.Signal: "sig_"} {
		for range 100 {
			id := s.New(p, time.Now())
			if !form.MatchString(id) || !strings.HasPrefix(id, want) {
				t.Fatalf("got %q, want %s and a ULID", id, want)
			}
		}
	}
}

// WLD-3, WLD-4: ids rise within a millisecond, and while the clock is set back.
func TestIDsRise(t *testing.T) {
	now := time.UnixMilli(1767355200123)
	for name, step := range map[string]func(i int) time.Time{
		"one millisecond":  func(int) time.Time { return now },
		"the clock falls":  func(i int) time.Time { return now.Add(-time.Duration(i) * time.Second) },
		"the clock swings": func(i int) time.Time { return now.Add(time.Duration(i%7-3) * time.Hour) },
		"before 1970":      func(int) time.Time { return time.Unix(-1000, 0) },
	} {
		var s ids.Source
		last := ""
		for i := range 10_000 {
			id := s.New(ids.Step, step(i))
			if id <= last {
				t.Fatalf("%s: id %d is %s, not above %s", name, i, id, last)
			}
			last = id
		}
	}
}

// WLD-7: behind the prefix stands the time of minting, to a millisecond.
func TestAnIDHasItsTime(t *testing.T) {
	var s ids.Source
	for _, ms := range []int64{0, 1, 1767355200123, 1767355200124, 1<<48 - 1} {
		at, err := ids.Time(ids.Event, s.New(ids.Event, time.UnixMilli(ms)))
		if err != nil || at.UnixMilli() != ms {
			t.Errorf("minted at %d: got %d, %v", ms, at.UnixMilli(), err)
		}
	}
	for _, wrong := range []string{"", "evnt_", "wrun_01JGZ3Q8X0000000000000000B", "evnt_01jgz3q8x0000000000000000b!", "evnt_01JGZ3Q8X0000000000000000U", "evnt_81JGZ3Q8X0000000000000000B"} {
		if _, err := ids.Time(ids.Event, wrong); err == nil {
			t.Errorf("%q is taken for the id of an event", wrong)
		}
	}
}

// An id of an entry of a log has its number.
func TestANumberedIDHasItsNumber(t *testing.T) {
	now := time.UnixMilli(1767355200123)
	last := ""
	for _, n := range []uint64{0, 1, 255, 256, 25_000, 1<<40 - 1} {
		id := ids.Numbered(ids.Event, now, n, 1<<40-1-n)
		got, err := ids.Number(ids.Event, id)
		at, err2 := ids.Time(ids.Event, id)
		if got != n || err != nil || err2 != nil || !at.Equal(now) || id <= last || !form.MatchString(id) {
			t.Errorf("%d: got %d of %v from %q, %v, %v", n, got, at, id, err, err2)
		}
		last = id
	}
	if ids.Numbered(ids.Event, now, 7, 1) == ids.Numbered(ids.Event, now, 7, 2) {
		t.Error("the lower bits are not in the id")
	}
}

// WLD-6: processes mint no id twice, without asking anybody.
func TestProcessesMintNoIDTwice(t *testing.T) {
	const processes = 8
	each := torture.Rounds(1_000_000, 50_000, 10_000)
	minted := make([][]string, processes)
	var all sync.WaitGroup
	for i := range processes {
		all.Go(func() {
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), fmt.Sprint("IDS_MINT=", each))
			out, err := c.Output()
			if err != nil {
				t.Error(err)
			}
			minted[i] = strings.Fields(string(out))
			if len(minted[i]) != each || !slices.IsSorted(minted[i]) {
				t.Errorf("process %d minted %d ids, want %d that rise", i, len(minted[i]), each)
			}
		})
	}
	all.Wait()
	ids := slices.Concat(minted...)
	slices.Sort(ids)
	for i := range ids[1:] {
		if ids[i] == ids[i+1] {
			t.Fatalf("%s was minted twice", ids[i])
		}
	}
}
