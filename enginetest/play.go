package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// The time limits, in virtual time, for the workflows of a scenario to end, and for the
// clients to succeed.
const (
	longest = 400 * 24 * time.Hour
	forever = 3 * longest
)

// A played is the outcome of one play of a scenario.
type played struct {
	calls   []call
	struck  string // the call that failed; "": none
	wrote   bool   // it is a commit
	effects []Effect
	keyed   map[string]bool // activities with an idempotency key
	ends    map[string]end  // by workflow id
	may     map[string]bool
	trouble []finding
}

// A call to the store.
type call struct {
	words string
	nth   int // of those with these words, from 1
	write bool
}

// An end is how a workflow stands when everything is over.
type end struct {
	status string
	result string // or why it failed, or what it waits for
}

// held is the start of the status of a run that needs an operator.
const held = "held for "

func (e end) String() string {
	if e.result == "" {
		return e.status
	}
	return e.status + ": " + e.result
}

// play plays the scenario. The first call for which strike returns true, given its
// number, fails; with a nil strike none fails.
func play(t *testing.T, scenario func(*Recorder) Scenario, strike func(n int, c call) bool, w way) *played {
	p := &played{ends: map[string]end{}, may: map[string]bool{}}
	err := sweep.Play(t, func(t testing.TB) *sweep.Stage { return p.stage(t, scenario, strike, w) })
	if err != nil {
		p.note("drive", fmt.Sprintf("Drive has no success: %v", err))
	}
	return p
}

func (p *played) stage(t testing.TB, scenario func(*Recorder) Scenario, strike func(n int, c call) bool, w way) *sweep.Stage {
	world := new(Recorder)
	sc := scenario(world)
	for _, name := range sc.MayRepeat {
		p.may[name] = true
	}
	var words reader
	met := map[string]int{}
	s := &sweep.Stage{
		Store:  sweep.Store{Open: sc.Open},
		Config: engine.Config{Workflows: sc.Workflows, Queues: sc.queues(), Deployment: deployment},
		Before: p.activate,
		Decide: func(c storagetest.Call) storagetest.Fault {
			now := call{words: words.read(c), write: c.Method == "Commit"}
			met[now.words]++
			now.nth = met[now.words]
			p.calls = append(p.calls, now)
			if strike == nil || p.struck != "" || !strike(len(p.calls), now) {
				return storagetest.None
			}
			p.struck, p.wrote = now.words, now.write
			if w.crash() {
				world.die()
			}
			return w.fault
		},
		Begin: func(int) { world.live() },
		Drive: func(ctx context.Context, eng *engine.Engine) error {
			synctest.Wait() // until it is ready for starts
			return sc.Drive(ctx, eng)
		},
		After: p.await,
		Closing: func(ctx context.Context, s storage.Storage) {
			p.effects, p.keyed = world.Effects(), world.keyed
			if sc.Check != nil {
				p.check(t, sc.Check, world)
			}
		},
		Tries:    1,
		Lives:    1,
		Patience: forever,
	}
	if strike != nil {
		s.Tries, s.Lives = 3, 6
	}
	if s.Store.Open == nil {
		s.Store.Open = func(testing.TB) storage.Storage { return new(memory.Store) }
	}
	return s
}

func (sc *Scenario) queues() []engine.Queue {
	if sc.Queues == nil {
		return engine.QueuesOf(sc.Workflows)
	}
	return sc.Queues
}

// activate makes the deployment active, so that Pinned workflows start. It is not part
// of the play.
func (p *played) activate(ctx context.Context, s storage.Storage) {
	outside, err := p.outside(s)
	if err != nil {
		return
	}
	defer outside.Close()
	if err := outside.Activate(ctx, deployment, audit); err != nil {
		p.note("store", err.Error())
	}
}

// outside is an engine that is not part of the play.
func (p *played) outside(s storage.Storage) (*engine.Engine, error) {
	eng, err := engine.New(engine.Config{Storage: s, Name: "outside", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		p.note("store", err.Error())
	}
	return eng, err
}

func (p *played) note(about string, lines ...string) {
	p.trouble = append(p.trouble, finding{about, lines})
}

// await waits until all workflows have ended or are held, and records how.
func (p *played) await(ctx context.Context, eng *engine.Engine, s storage.Storage) {
	outside, err := p.outside(s)
	if err != nil {
		return
	}
	defer outside.Close()
	began := time.Now()
	for pause := time.Second; ; pause = min(2*pause, 24*time.Hour) {
		open := p.look(ctx, outside)
		switch {
		case len(open) == 0 || ctx.Err() != nil:
			return
		case time.Since(began) > longest:
			for _, id := range open {
				p.waitsFor(ctx, eng, id)
			}
			return
		}
		time.Sleep(pause)
	}
}

// look records the status of all workflows, and returns those that have not ended.
func (p *played) look(ctx context.Context, eng *engine.Engine) (open []string) {
	for i, err := range eng.List(ctx, engine.Filter{}) {
		if ctx.Err() != nil {
			return nil // the process has died meanwhile
		}
		if err != nil {
			p.note("store", fmt.Sprintf("list of workflows: %v", err))
			return nil
		}
		e := end{status: string(i.Status)}
		// On a store with one opener at a time, this engine does not see the engine
		// that runs the workflows.
		needs := slices.DeleteFunc(i.Attention, func(a engine.Attention) bool { return a.Reason == engine.ReasonUnregistered })
		switch {
		case i.Status.Terminal():
			e.result = outcome(ctx, eng, i.ID)
		case len(needs) > 0:
			e = end{held + string(needs[0].Reason), needs[0].Detail}
		default:
			open = append(open, i.ID)
		}
		p.ends[i.ID] = e
	}
	return open
}

// waitsFor records what a workflow waits for that does not end.
func (p *played) waitsFor(ctx context.Context, eng *engine.Engine, id string) {
	e := end{status: "not ended", result: fmt.Sprintf("%d days after Drive had returned it is %s", int(longest.Hours()/24), p.ends[id].status)}
	if i, err := eng.Describe(ctx, id); err == nil && len(i.Waiting) > 0 {
		e.result += fmt.Sprintf(" and waits for %v", i.Waiting)
	}
	p.ends[id] = e
	p.note("end of "+id, id+" has "+e.String())
}

// outcome is the result of a workflow, or why there is none.
func outcome(ctx context.Context, eng *engine.Engine, id string) string {
	var result json.RawMessage
	err := eng.Result(ctx, id, "", &result)
	var failed *engine.WorkflowError
	switch {
	case errors.As(err, &failed):
		return failed.Message
	case errors.Is(err, engine.ErrCancelled):
		return ""
	case err != nil:
		return err.Error()
	}
	return string(result)
}

// check runs a Check, and records its messages.
func (p *played) check(t testing.TB, check func(testing.TB, *Recorder), world *Recorder) {
	c := &complaints{TB: t}
	done := make(chan struct{})
	go func() { // of its own, because FailNow ends it
		defer close(done)
		check(c, world)
	}()
	<-done
	if c.Failed() {
		p.note("check", append([]string{"Check complains:"}, indented(c.said)...)...)
	}
}
