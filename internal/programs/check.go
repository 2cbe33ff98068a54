package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// poll is the engines' PollInterval: longer than most programs, because a poll of a store on a
// server takes real time.
const poll = 50*time.Hour + 7*time.Minute + 13*time.Second

// root is the id of the program's workflow. The ids of its children are derived from it.
const root = "program-1"

// A played is the result of running a program.
type played struct {
	learnt   string            // by the client
	settled  map[string]string // outcomes of activities and steps, by operation
	calls    int               // number of calls to the store
	struck   []string          // calls that had a fault
	problems []string
	witness  *Witness
}

// A Tally counts what was exercised.
type Tally struct {
	Programs int
	Children int            // children of the programs
	Calls    int            // to the stores
	Blows    int            // faults that were injected
	Cut      int            // calls of workflow functions that were interrupted, and continued in another call
	Ends     map[string]int // completed, failed, cancelled
	Seen     map[Kind]int   // operations whose outcome was seen
	Resumed  int            // activities that found progress
}

func (y *Tally) add(h *played) {
	if y.Ends == nil {
		y.Ends, y.Seen = map[string]int{}, map[Kind]int{}
	}
	y.Programs++
	y.Calls += h.calls
	y.Blows += len(h.struck)
	y.Resumed += len(h.witness.found)
	for id, lives := range h.witness.lives {
		y.Cut += len(lives) - 2
		for _, line := range lives[len(lives)-1].saw {
			y.Seen[Kind(strings.TrimRight(strings.Fields(line)[1], "0123456789"))]++
		}
		if id != root {
			y.Children++
		}
	}
	end, _, _ := strings.Cut(h.learnt, ":")
	if strings.HasPrefix(end, "[") {
		end = "completed"
	}
	y.Ends[end]++
}

// Check draws a random program with faults. It runs the program without faults in memory and then
// with the faults on store. It fails if the results differ, or if one incarnation of the program
// saw something else than the one before. A failure may not be reproducible, because goroutines
// that become runnable at the same moment run in any order.
func (y *Tally) Check(t *testing.T, seed uint64, store sweep.Store) {
	t.Helper()
	p, blows := Draw(seed)
	whole := trial{p, blows}
	h, problems := whole.play(t, store)
	if y.add(h); len(problems) == 0 {
		return
	}
	least := whole
	shrink(whole, 1000, func(c trial) bool {
		for range 3 {
			if g, found := c.play(t, store); len(found) > 0 {
				h, problems, least = g, found, c
				return true
			}
		}
		return false
	})
	t.Fatalf("WEFT_SEED=%d: struck at %q:\n    %s\n%s", seed, h.struck, strings.Join(problems, "\n    "), least.p)
}

// play runs c without and with faults, and returns what is wrong.
func (c trial) play(t *testing.T, store sweep.Store) (*played, []string) {
	calm := play(t, sweep.Store{Open: func(testing.TB) storage.Storage { return new(memory.Store) }}, c.p, nil)
	if len(calm.problems) > 0 {
		return calm, append([]string{"undisturbed:"}, calm.problems...)
	}
	h := play(t, store, c.p, c.blows)
	return h, h.beside(calm, c.p)
}

// beside returns what is wrong with h, compared to the run without faults.
func (h *played) beside(calm *played, p *Program) []string {
	problems := h.problems
	if !p.open() && h.learnt != calm.learnt {
		problems = append(problems, fmt.Sprintf("the client learnt %q, undisturbed %q", h.learnt, calm.learnt))
	}
	if !p.cuts() && !maps.Equal(h.settled, calm.settled) {
		problems = append(problems, fmt.Sprintf("the history has the outcomes %v, undisturbed %v", h.settled, calm.settled))
	}
	return problems
}

func play(t *testing.T, store sweep.Store, p *Program, blows []Blow) *played {
	h := &played{settled: map[string]string{}}
	var stage *sweep.Stage
	err := sweep.Play(t, func(testing.TB) *sweep.Stage {
		stage = h.stage(store, p, blows)
		return stage
	})
	if err != nil {
		h.problems = append(h.problems, err.Error())
	}
	h.problems = append(h.problems, stage.Problems...)
	return h
}

func (h *played) stage(store sweep.Store, p *Program, blows []Blow) *sweep.Stage {
	w := new(Witness)
	h.witness = w
	ws := p.workflows(w)
	config := engine.Config{Workflows: ws.definitions(), PollInterval: poll}
	if blows != nil { // not in the run without faults
		config.ParkAfter, config.MaxRunsInMemory, config.MaxActivities = p.ParkAfter, p.MaxRuns, p.MaxActivities
	}
	calls := 0
	return &sweep.Stage{
		Store:  store,
		Config: config,
		Decide: func(c storagetest.Call) storagetest.Fault {
			h.calls++
			calls++
			if len(blows) == 0 || calls < blows[0].After {
				return storagetest.None
			}
			calls = 0
			fault := blows[0].Fault
			blows = blows[1:]
			h.struck = append(h.struck, fmt.Sprintf("%s: %s", sweep.Names[fault], sweep.Where(c)))
			return fault
		},
		Begin: func(int) {},
		Drive: func(ctx context.Context, eng *engine.Engine) (err error) {
			h.learnt, err = p.drive(ctx, eng, ws.program)
			return err
		},
		Tries:   3,
		After:   h.await,
		Closing: func(ctx context.Context, s storage.Storage) { h.look(ctx, s, ws) },
		// Each fault ends at most one incarnation.
		Check:    true,
		Lives:    len(blows) + 1,
		Patience: 1000 * 24 * time.Hour,
	}
}

// drive is the client of p. It returns how p ended.
func (p *Program) drive(ctx context.Context, eng *engine.Engine, wf *engine.Workflow[int, string]) (string, error) {
	h, err := wf.Start(ctx, eng, root, 1)
	if err != nil {
		return "", err
	}
	for _, s := range p.Sends {
		time.Sleep(s.Pause)
		_, err := named(s.Signal).Send(ctx, eng, root, s.V, &signal.Options{ID: fmt.Sprint(s.V)})
		if err != nil && !(p.open() && errors.Is(err, engine.ErrTerminal)) {
			return "", err
		}
	}
	if p.Cancel > 0 {
		time.Sleep(p.Cancel)
		if err := h.Cancel(ctx, engine.Actor{Reason: "enough"}); err != nil && !errors.Is(err, engine.ErrTerminal) {
			return "", err
		}
	}
	result, err := h.Result(ctx)
	var failed *engine.WorkflowError
	switch {
	case errors.Is(err, engine.ErrCancelled):
		return "cancelled", nil
	case errors.As(err, &failed):
		return "failed: " + failed.Message, nil
	}
	return result, err
}

// await waits until children that nobody waited for have ended, and until the next poll has
// removed hints.
func (h *played) await(ctx context.Context, eng *engine.Engine, s storage.Storage) {
	outside, err := observer(s, nil)
	if err != nil {
		h.problems = append(h.problems, err.Error())
		return
	}
	defer outside.Close()
	for range 1000 {
		ids, open := all(ctx, outside)
		if !open && len(ids) > 0 || ctx.Err() != nil {
			break
		}
		time.Sleep(24 * time.Hour)
	}
	time.Sleep(3 * poll)
}

func observer(s storage.Storage, ws []engine.Definition) (*engine.Engine, error) {
	return engine.New(engine.Config{Storage: s, Workflows: ws, Name: "outside", Logger: slog.New(slog.DiscardHandler)})
}

// all returns the ids of all workflows, and whether one has not ended.
func all(ctx context.Context, eng *engine.Engine) (ids []string, open bool) {
	for i, err := range eng.List(ctx, engine.Filter{}) {
		if err == nil {
			ids = append(ids, i.ID)
			open = open || !i.Status.Terminal()
		}
	}
	return ids, open
}

// look checks what is in the store at the end, and what was seen.
func (h *played) look(ctx context.Context, s storage.Storage, ws *workflows) {
	outside, err := observer(s, ws.definitions())
	if err != nil {
		h.problems = append(h.problems, err.Error())
		return
	}
	defer outside.Close()
	ids, _ := all(ctx, outside)
	left := []string{"held:", "todo:", "wake:"}
	if !ws.p.open() {
		left = append(left, "sig:", "inbox:")
	}
	h.problems = append(h.problems, sweep.Inspect(ctx, s, ids, left)...)
	for _, id := range ids {
		var history bytes.Buffer
		err := outside.Export(ctx, id, &history)
		if err == nil {
			err = outside.Replay(ctx, &history)
		}
		if err != nil {
			h.problems = append(h.problems, err.Error())
		}
		h.problems = append(h.problems, compare(id, ws.w.lives[id])...)
	}
	h.problems = append(h.problems, ws.p.effects(ws.w)...)
	h.problems = append(h.problems, ws.w.problems...)
	for c, err := range outside.History(ctx, root) {
		if err != nil {
			h.problems = append(h.problems, err.Error())
			return
		}
		for _, e := range c.Events {
			if e.Kind == checkpoint.KindSettled {
				h.settled[e.Operation] = fmt.Sprintf("%s %s %s %s", e.Of, e.Name, e.Result, e.Error)
			}
		}
	}
}

// effects returns which activities had their effect twice although they check before a retry.
func (p *Program) effects(w *Witness) (problems []string) {
	once := func(o *Op) {
		if n := w.effects[o.V]; o.Key == Verified && n > 1 {
			problems = append(problems, fmt.Sprintf("%d has had its effect %d times", o.V, n))
		}
	}
	walk(p.Main, once)
	walk(p.Cleanup, once)
	return problems
}

// compare returns which call of a workflow function saw something else than the last one, which
// replays the whole history. Each must have seen a prefix of it, and the last but one all of it.
func compare(id string, lives []*life) (problems []string) {
	whole := lives[len(lives)-1].saw
	for i, l := range lives {
		n := min(len(l.saw), len(whole))
		for j := range n {
			if l.saw[j] != whole[j] {
				problems = append(problems, fmt.Sprintf("%s: life %d of %d saw as number %d\n        %s    and the replay of the history\n        %s", id, i+1, len(lives), j+1, l.saw[j], whole[j]))
				break
			}
		}
		if len(l.saw) > n || i == len(lives)-2 && len(l.saw) < len(whole) {
			problems = append(problems, fmt.Sprintf("%s: life %d of %d saw %d things, the replay of the history %d", id, i+1, len(lives), len(l.saw), len(whole)))
		}
	}
	return problems
}
