package world_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/internal/world"
	"github.com/weft-go/weft/internal/worldstream"
	"github.com/weft-go/weft/storage/postgres"
)

// followsEnv has the address of a database. A process of this test that has it follows the run and the stream of
// TestFollowersInProcessesOfTheirOwn there.
const followsEnv = "WEFT_WORLD_FOLLOWS"

// A followed is what a follower has got.
type followed struct {
	Events, Chunks []string
}

// eventsToTheEnd returns the ids of the events of wrun_1 as a follower gets them, until the run has completed.
func eventsToTheEnd(ctx context.Context, w *world.World) (all []string, err error) {
	for p := (world.Page{Limit: 7, Order: world.Ascending}); ; {
		l, err := w.Events(ctx, "wrun_1", p, world.ResolveNone)
		if err != nil {
			return all, err
		}
		for _, e := range l.Data {
			all = append(all, e.EventID)
			if e.EventType == world.RunCompleted {
				return all, nil
			}
		}
		if p.Cursor = l.Tail; len(l.Data) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return all, context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// followAsAProcess follows to the end, and prints what it has got. Before it begins it prints a line.
func followAsAProcess(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	s, err := postgres.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	w, err := world.Open(s, nil)
	if err != nil {
		return err
	}
	streams, err := worldstream.Open(s, nil)
	if err != nil {
		return err
	}
	defer streams.Close()
	var got followed
	var following sync.WaitGroup
	errs := make([]error, 2)
	fmt.Println("ready")
	following.Go(func() { got.Events, errs[0] = eventsToTheEnd(ctx, w) })
	following.Go(func() {
		_, errs[1] = streams.Read(ctx, "wrun_1", "words", 0, func(_ uint64, cs []worldstream.Chunk) error {
			for _, c := range cs {
				got.Chunks = append(got.Chunks, fmt.Sprintf("%d %s", c.Index, c.Data))
			}
			return nil
		})
	})
	following.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(got)
}

// Followers in three processes get each event of a run and each chunk of its stream once, in order, while a fourth process
// writes them.
func TestFollowersInProcessesOfTheirOwn(t *testing.T) {
	url := pgtest.URL(t)
	s, err := postgres.Open(t.Context(), url, nil)
	c := open(t, opened(t, s, err))
	all := streams(t, c.store)
	c.begin("wrun_1")
	write(t, all, "first")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var outs []*bufio.Reader
	var processes []*exec.Cmd
	for range 3 {
		p := exec.CommandContext(t.Context(), self)
		p.Env = append(os.Environ(), followsEnv+"="+url)
		p.Stderr = os.Stderr
		out, err := p.StdoutPipe()
		if err == nil {
			err = p.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		processes, outs = append(processes, p), append(outs, bufio.NewReader(out))
	}
	for _, out := range outs {
		if _, err := out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	want := followed{Chunks: []string{"0 first"}}
	each := torture.Rounds(500, 200, 60)
	for i := range each {
		c.must("wrun_1", world.StepCreated, fmt.Sprintf("step_%d", i), fields{"stepName": "pay", "input": 1})
		write(t, all, fmt.Sprint(i))
		want.Chunks = append(want.Chunks, fmt.Sprint(i+1, " ", i))
	}
	closeWords(t, all)
	c.must("wrun_1", world.RunCompleted, "", fields{"output": 1})
	l, err := c.Events(c.ctx, "wrun_1", world.Page{Limit: 1000, Order: world.Ascending}, world.ResolveNone)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range l.Data {
		want.Events = append(want.Events, e.EventID)
	}
	if len(want.Events) != each+3 {
		t.Errorf("the log has %d events, want %d", len(want.Events), each+3)
	}
	for i, out := range outs {
		var got followed
		raw, err := io.ReadAll(out)
		if err == nil {
			err = processes[i].Wait()
		}
		if err == nil {
			err = json.Unmarshal(raw, &got)
		}
		if err != nil || !slices.Equal(got.Events, want.Events) || !slices.Equal(got.Chunks, want.Chunks) {
			t.Errorf("process %d got %d events and %d chunks, %v; want %d and %d, each once and in order", i, len(got.Events), len(got.Chunks), err, len(want.Events), len(want.Chunks))
		}
	}
}
