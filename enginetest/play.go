package enginetest

import (
	"cmp"
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
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// The time limits, in virtual time, for the workflows of a scenario to end, and for the
// clients to succeed if the scenario has no Timeout.
const (
	longest = 400 * 24 * time.Hour
	forever = 3 * longest
)

// mostCommits is how many commits a play without failures may make, apart from renewals of leases.
// Each of them is a place for several crashes, and more could not be played in any reasonable time. A
// play with failures may make twice as many, and mostRepeated more for each failure.
const (
	mostCommits  = 5_000
	mostRepeated = 100
)

// A played is the outcome of one play of a scenario.
type played struct {
	calls    []call
	words    reader
	struck   string // the last call that failed; "": none
	wrote    bool   // it writes
	deaths   int    // of processes
	effects  []Effect
	keyed    map[string]bool // activities with an idempotency key
	ends     map[string]end  // by workflow id; at the end by its name, see names
	attempts map[doing]int   // of what failed: the last attempt
	chunks   map[writer][]string
	varying  map[writer]bool // not the same each time, and not compared
	may      map[string]bool
	most     int             // the maximum number of commits
	endless  context.Context // ends when there have been more
	trouble  []finding
}

// A doing is an operation of a run.
type doing struct{ run, operation string }

// A call to the store.
type call struct {
	words string
	nth   int // of those with these words, from 1
	write bool
	step  bool // a commit, or a transaction, that is no renewal of a lease
}

// An end is how a workflow stands when everything is over.
type end struct {
	status string
	result string // or why it failed, or what it waits for
}

// held is the start of the status of a run that is held.
const held = "held for "

func (e end) String() string {
	if e.result == "" {
		return e.status
	}
	return e.status + ": " + e.result
}

// A strike decides whether call n fails, and in which way. Calls are numbered from 1.
type strike func(n int, c call) (w way, fails bool)

// play plays the scenario. At most failures of its calls fail, as strike decides.
func play(t *testing.T, scenario func(*Recorder) Scenario, strike strike, failures int) *played {
	p := &played{ends: map[string]end{}, attempts: map[doing]int{}, may: map[string]bool{}}
	var stage *sweep.Stage
	err := sweep.Play(t, func(t testing.TB) *sweep.Stage {
		stage = p.stage(t, scenario, strike, failures)
		return stage
	})
	for _, problem := range stage.Problems {
		p.note("engine", problem)
	}
	if err != nil {
		p.note("drive", fmt.Sprintf("Drive has no success: %v", err))
	}
	return p
}

func (p *played) stage(t testing.TB, scenario func(*Recorder) Scenario, strike strike, failures int) *sweep.Stage {
	world := new(Recorder)
	sc := scenario(world)
	for _, name := range sc.MayRepeat {
		p.may[name] = true
	}
	met, commits := map[string]int{}, 0
	var tooMany context.CancelFunc
	p.most = mostCommits
	if failures > 0 {
		p.most = 2*mostCommits + (failures-1)*mostRepeated
	}
	p.endless, tooMany = context.WithCancel(context.Background())
	s := &sweep.Stage{
		Store:  sweep.Store{Open: sc.Open},
		Config: engine.Config{Workflows: sc.Workflows, Queues: sc.queues(), Deployment: deployment},
		Before: p.activate,
		Decide: func(c storagetest.Call) storagetest.Fault {
			now := call{words: p.words.read(c), write: c.Method == "Commit" || c.Method == "Transact"}
			now.step = now.write && !c.Batch.Urgent
			met[now.words]++
			now.nth = met[now.words]
			p.calls = append(p.calls, now)
			if now.step {
				commits++
			}
			if commits > p.most {
				tooMany()
				return storagetest.ErrorBefore // a run that never waits would not end
			}
			if failures == 0 {
				return storagetest.None
			}
			w, fails := strike(len(p.calls), now)
			if !fails {
				return storagetest.None
			}
			p.struck, p.wrote = now.words, now.write
			return w.fault
		},
		Begin:   func(int) { world.live() },
		Crashed: world.die, // not earlier: until the store has crashed it records what becomes of effects
		Drive: func(ctx context.Context, eng *engine.Engine) error {
			synctest.Wait() // until it is ready for starts
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(p.endless, cancel)()
			err := sc.Drive(ctx, eng)
			if err != nil && p.endless.Err() != nil {
				return p.goesOn()
			}
			return err
		},
		After: p.await,
		Closing: func(ctx context.Context, s storage.Storage) {
			p.effects, p.keyed, p.deaths = world.Effects(), world.keyed, world.deaths
			p.countAttempts(ctx, s)
			p.readStreams(ctx, s)
			p.rename()
			if sc.Check != nil {
				p.check(t, sc.Check, world)
			}
		},
		Tries:    1,
		Lives:    1,
		Patience: cmp.Or(sc.Timeout, forever),
	}
	if failures > 0 {
		s.Tries, s.Lives = 3, 5+failures
	}
	if sc.Deployed != nil {
		s.Deploy = &sweep.Deploy{After: sc.DeployAfter, Workflows: sc.Deployed}
	}
	if s.Store.Open == nil {
		s.Store.Open = func(testing.TB) storage.Storage { return new(memory.Store) }
	}
	return s
}

// goesOn is the error of a play that has made more commits than it may.
func (p *played) goesOn() error {
	return fmt.Errorf("the scenario does not end: it has made %d commits. "+
		"Play a part that ends, with fewer rounds of a loop, or have Drive cancel the workflow", p.most)
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
		synctest.Wait() // a run that is started while the list is read is not in it
		open := p.look(ctx, outside)
		switch {
		case len(open) == 0 || ctx.Err() != nil:
			return
		case p.endless.Err() != nil:
			p.note("drive", p.goesOn().Error())
			for _, id := range open {
				p.waitsFor(ctx, eng, id, fmt.Sprintf("after %d commits", p.most))
			}
			return
		case time.Since(began) > longest:
			for _, id := range open {
				p.waitsFor(ctx, eng, id, fmt.Sprintf("%d days after Drive had returned", int(longest.Hours()/24)))
			}
			return
		}
		select {
		case <-time.After(pause):
		case <-p.endless.Done():
		}
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
		holding := slices.DeleteFunc(i.Attention, func(a engine.Attention) bool {
			return a.Reason == engine.ReasonUnregistered || !run.Holds(a.Reason)
		})
		switch {
		case i.Status.Terminal():
			e.result = outcome(ctx, eng, i.ID)
		case len(holding) > 0:
			e = end{held + string(holding[0].Reason), holding[0].Detail}
		default:
			open = append(open, i.ID)
		}
		p.ends[i.ID] = e
	}
	return open
}

// waitsFor records what a workflow waits for that has not ended at some time.
func (p *played) waitsFor(ctx context.Context, eng *engine.Engine, id, when string) {
	e := end{status: "not ended", result: when + " it is " + string(p.ends[id].status)}
	if i, err := eng.Describe(ctx, id); err == nil {
		if len(i.Waiting) > 0 {
			e.result += fmt.Sprintf(" and waits for %v", i.Waiting)
		}
		for _, a := range i.Attention {
			e.result += fmt.Sprintf("; %s: %s", a.Reason, a.Detail)
		}
	}
	p.ends[id] = e
	name := p.words.names.of(id)
	p.note("end of "+name, name+" has "+p.words.names.replace(e.String()))
}

// countAttempts records the numbers of the attempts that failed.
func (p *played) countAttempts(ctx context.Context, s storage.Storage) {
	outside, err := p.outside(s)
	if err != nil {
		return
	}
	defer outside.Close()
	for id := range p.ends {
		for c, err := range outside.History(ctx, id) {
			if err != nil {
				break // its end, which was read before, says what is wrong
			}
			for _, e := range c.Events {
				if e.Attempt > 0 && (e.Error != "" || e.Category != "") {
					p.attempts[doing{id, e.Operation}] = e.Attempt
				}
			}
		}
	}
}

// rename replaces the ids that the engine has made by what they have in common with those of
// other plays.
func (p *played) rename() {
	n := &p.words.names
	ends, attempts := map[string]end{}, map[doing]int{}
	for id, e := range p.ends {
		ends[n.of(id)] = end{e.status, n.replace(e.result)}
	}
	for d, number := range p.attempts {
		attempts[doing{n.of(d.run), d.operation}] = number
	}
	for i := range p.effects {
		e := &p.effects[i]
		e.Name, e.WorkflowID = n.replace(e.Name), n.of(e.WorkflowID)
	}
	chunks := map[writer][]string{}
	for w, written := range p.chunks {
		for i := range written {
			written[i] = n.replace(written[i])
		}
		chunks[writer{n.of(w.run), w.stream, w.operation}] = written
	}
	p.ends, p.attempts, p.chunks = ends, attempts, chunks
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
