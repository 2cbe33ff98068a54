package programs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/signal"
)

var errDenied = errors.New("denied")

// A job is the input of an activity.
type job struct {
	V      int
	For    time.Duration
	Fails  int
	Denied bool
}

// work returns the activity of o. It takes its time, fails as often as it should, then has its
// effect and returns its number.
func (ws *workflows) work(o Op) *activity.Activity[job, int] {
	a := &activity.Activity[job, int]{
		Name:          "work",
		Errors:        []error{errDenied},
		Retry:         activity.Retry{MaxAttempts: -1, Backoff: time.Minute},
		Timeout:       100 * time.Hour,
		Run:           ws.w.run,
		ResourceScope: func(job) string { return o.Scope },
		MaxConcurrent: ws.p.MaxConcurrent,
	}
	if n := ws.p.PerHour; n > 0 {
		a.Rate = activity.Rate{Count: n, Per: time.Hour}
	}
	switch o.Key {
	case Idempotent:
		a.Idempotent = true
	case Verified:
		a.IdempotencyKey = func(j job) string { return fmt.Sprint("job ", j.V) }
		a.Verify = ws.w.verify
		a.Settle = time.Hour
	}
	return a
}

func (w *Witness) run(ctx context.Context, j job) (int, error) {
	if j.V%2 == 0 {
		from, ok := activity.Progress[step](ctx)
		if err := activity.Heartbeat(ctx, w.step(j, from, ok)); err != nil {
			return 0, err
		}
	}
	select {
	case <-time.After(j.For):
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	switch {
	case activity.InfoFrom(ctx).Attempt <= j.Fails:
		return 0, errors.New("not yet")
	case j.Denied:
		return 0, activity.Permanent(activity.NoEffect(errDenied))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.effects == nil {
		w.effects = map[int]int{}
	}
	w.effects[j.V]++
	return j.V, nil
}

// A step is the progress of an activity.
type step struct{ V, N int }

// step returns the next step of j. Progress that was found must be its own and must not go back.
func (w *Witness) step(j job, from step, found bool) step {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told == nil {
		w.told, w.found = map[int]int{}, map[int]int{}
	}
	if found && (from.V != j.V || from.N > w.told[j.V] || from.N < w.found[j.V]) {
		w.problems = append(w.problems, fmt.Sprintf("%d found the progress %+v, having found %d and told %d", j.V, from, w.found[j.V], w.told[j.V]))
	}
	if found {
		w.found[j.V] = from.N
	}
	w.told[j.V]++
	return step{j.V, w.told[j.V]}
}

func (w *Witness) verify(_ context.Context, j job) (activity.Verification[int], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.effects[j.V] == 0 {
		return activity.NotCompleted[int](), nil
	}
	return activity.CompletedWithResult(j.V), nil
}

// job returns the input of the activity of o.
func (o Op) job() job { return job{o.V, o.For, o.Fails, o.Denied} }

// A Witness records what the runs of a program saw: line by line, for each call of each
// workflow function.
type Witness struct {
	mu          sync.Mutex
	lives       map[string][]*life // by workflow id
	effects     map[int]int        // effects of activities, by number
	told, found map[int]int        // progress of activities, by number
	problems    []string
}

type life struct{ saw []string }

func (w *Witness) begin(id string) *life {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lives == nil {
		w.lives = map[string][]*life{}
	}
	l := new(life)
	w.lives[id] = append(w.lives[id], l)
	return l
}

func (w *Witness) note(l *life, line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.saw = append(l.saw, line)
}

// workflows interpret p: the main workflow and its children.
type workflows struct {
	p       *Program
	w       *Witness
	program *engine.Workflow[int, string]
	child   *engine.Workflow[int, int]
}

func (p *Program) workflows(w *Witness) *workflows {
	ws := &workflows{p: p, w: w}
	ws.program = &engine.Workflow[int, string]{Name: "program", Func: ws.main}
	ws.child = &engine.Workflow[int, int]{Name: "child", Func: ws.body}
	return ws
}

func (ws *workflows) definitions() []engine.Definition {
	return []engine.Definition{ws.program, ws.child}
}

// call returns an arm for a new call of a workflow function.
func (ws *workflows) call(run *engine.Run) *arm {
	f := &function{workflows: ws, life: ws.w.begin(run.ID()), left: map[string]int{}}
	return &arm{function: f, name: "main"}
}

// main returns all results that count.
func (ws *workflows) main(run *engine.Run, _ int) (string, error) {
	a := ws.call(run)
	for _, s := range ws.p.Sends {
		a.left[s.Signal]++
	}
	err := a.all(run, ws.p.Main)
	if err == nil {
		err = a.drain(run)
	}
	switch {
	case errors.Is(err, engine.ErrCancelled):
		return a.cancelled(run, err)
	case errors.Is(err, errLeft):
		return "left", nil
	case err != nil:
		return "", err
	}
	slices.Sort(a.got)
	return fmt.Sprint(a.got), nil
}

var errLeft = errors.New("left")

// cancelled runs the cleanup, and ends as the program says.
func (a *arm) cancelled(run *engine.Run, err error) (string, error) {
	a.note(run, "cancelled", err)
	if e := a.all(run.WithoutCancel(), a.p.Cleanup); e != nil {
		return "", fmt.Errorf("cleaning up: %w", e)
	}
	if a.p.Finish {
		return "finished", nil
	}
	return "", err
}

// body is the function of a child: v is the operation that has its body. It returns the sum of
// the results that count.
func (ws *workflows) body(run *engine.Run, v int) (int, error) {
	a := ws.call(run)
	err := a.all(run, ws.p.find(v).Body)
	if err == nil {
		err = a.drain(run)
	}
	sum := 100_000 * v
	for _, n := range a.got {
		sum += n
	}
	return sum, err
}

// A function is one call of the workflow function. Its branches share it.
type function struct {
	*workflows
	life *life
	got  []int          // results that it returns
	left map[string]int // signals not received yet
}

// An arm interprets a branch, or a part of one.
type arm struct {
	*function
	name    string
	pending []*future.Future[int] // started but not awaited yet
	cut     bool                  // it may be abandoned, so its results do not count
}

// inner returns an arm for a part that may be abandoned.
func (a *arm) inner(name string, o Op, cut bool) *arm {
	return &arm{function: a.function, name: fmt.Sprintf("%s.%s%d", a.name, name, o.V), cut: a.cut || cut}
}

// note records what the run saw, with the time and a random number of the run.
func (a *arm) note(run *engine.Run, what string, saw ...any) {
	a.w.note(a.life, fmt.Sprintln(a.name, what, saw, run.Now().Format(time.StampMicro), run.Random().IntN(1000)))
}

// take records an outcome. It returns the errors that end a part of the program.
func (a *arm) take(run *engine.Run, o Op, v int, err error) error {
	a.note(run, fmt.Sprint(o.Kind, o.V), v, err)
	switch {
	case errors.Is(err, engine.ErrCancelled), errors.Is(err, engine.ErrTimeout):
		return err
	case err == nil && !a.cut:
		a.got = append(a.got, v)
	}
	return nil
}

// all interprets a body, up to an error that ends it.
func (a *arm) all(run *engine.Run, ops []Op) error {
	for _, o := range ops {
		if err := a.one(run, o); err != nil {
			return err
		}
	}
	return nil
}

func (a *arm) one(run *engine.Run, o Op) error {
	switch o.Kind {
	case Step:
		v, err := engine.Step(run, "step", func(context.Context) (int, error) { return o.V, nil })
		return a.take(run, o, v, err)
	case Do:
		v, err := a.work(o).Do(run, o.job())
		return a.take(run, o, v, err)
	case Go:
		a.pending = append(a.pending, a.work(o).Go(run, o.job()))
	case Branch:
		a.pending = append(a.pending, a.branch(run, o))
	case Child:
		a.pending = append(a.pending, a.child.AsChild(engine.ChildOptions{OnParentEnd: o.OnEnd}).Go(run, o.V))
	case Detach:
		_, err := a.child.Detach(run, "", o.V)
		return a.take(run, o, 0, err) // without its id, which differs each time
	case Get:
		return a.get(run, o)
	case All:
		return a.getAll(run, o)
	case Select:
		return a.choose(run, o)
	case Map:
		return a.each(run, o)
	case Sleep:
		err := run.Sleep(o.For)
		a.note(run, fmt.Sprint("slept ", o.V), err)
		return err
	case Receive:
		v, err := named(o.Signal).Receive(run)
		return a.received(run, o, v, err == nil, err)
	case Within:
		v, ok, err := named(o.Signal).ReceiveWithin(run, o.For)
		return a.received(run, o, v, ok, err)
	case Timeout, Revoke, Shield:
		a.part(run, o)
	case Fail:
		if err := a.drain(run); err != nil {
			return err
		}
		return fmt.Errorf("branch fails at %d", o.V)
	case Leave:
		return errLeft
	}
	return nil
}

func named(name string) *signal.Signal[int] { return &signal.Signal[int]{Name: name} }

func (a *arm) received(run *engine.Run, o Op, v int, ok bool, err error) error {
	if err == nil && !ok {
		a.note(run, fmt.Sprint("missed ", o.V))
		return nil
	}
	if err == nil {
		a.left[o.Signal]--
		a.got = append(a.got, v) // even if other results do not count: no signal may be lost
	}
	quiet := *a
	quiet.cut = true
	return quiet.take(run, o, v, err)
}

func (a *arm) branch(run *engine.Run, o Op) *future.Future[int] {
	return engine.Go(run, "branch", func(run *engine.Run) (int, error) {
		b := a.inner("branch", o, false)
		err := b.all(run, o.Body)
		if err == nil {
			err = b.ended(run)
		}
		b.settle(run)
		return o.V, err
	})
}

// get awaits the first pending future.
func (a *arm) get(run *engine.Run, o Op) error {
	if len(a.pending) == 0 {
		return nil
	}
	v, err := a.pending[0].Get(run)
	if err := a.take(run, o, v, err); err != nil {
		return err
	}
	a.pending = a.pending[1:]
	return nil
}

// settle waits for what is pending after a branch or a part was abandoned, so that it does not
// receive signals later.
func (a *arm) settle(run *engine.Run) {
	for _, f := range a.pending {
		v, err := f.Get(run.WithoutCancel())
		a.note(run, "settled", v, err)
	}
}

// ended awaits all that is pending at the end of a branch or a part.
func (a *arm) ended(run *engine.Run) error {
	for len(a.pending) > 0 {
		if err := a.get(run, Op{Kind: Get}); err != nil {
			return err
		}
	}
	return nil
}

func (a *arm) getAll(run *engine.Run, o Op) error {
	vs, err := engine.All(run, a.pending...)
	a.note(run, fmt.Sprint("all ", o.V), vs, err)
	if errors.Is(err, engine.ErrCancelled) || errors.Is(err, engine.ErrTimeout) {
		return err
	}
	a.pending = nil
	for _, v := range vs {
		if v != 0 && !a.cut {
			a.got = append(a.got, v)
		}
	}
	return nil
}

// choose selects among all that is pending, a signal and a timer. The winner is recorded, but
// does not affect what follows.
func (a *arm) choose(run *engine.Run, o Op) error {
	var cases []engine.Case
	for _, f := range a.pending {
		cases = append(cases, f)
	}
	var next *future.Future[int]
	if o.Signal != "" {
		next = named(o.Signal).Next(run)
		cases = append(cases, next)
	}
	if o.For > 0 {
		cases = append(cases, run.After(o.For))
	}
	if stop := run.Cancelled(); len(cases) > 0 && o.V%3 == 0 { // called unconditionally, so that operations have the same positions in every run
		cases = append(cases, stop)
	}
	won, err := engine.Select(run, cases...)
	i := slices.Index(cases, won)
	a.note(run, fmt.Sprint("select ", o.V), i, err)
	switch {
	case errors.Is(err, engine.ErrNoCase):
		return nil
	case err != nil:
		return err
	case next != nil && won == engine.Case(next):
		v, err := next.Get(run)
		return a.received(run, o, v, err == nil, err)
	case i < len(a.pending):
		f := a.pending[i]
		a.pending = slices.Delete(a.pending, i, i+1)
		v, err := f.Get(run)
		return a.take(run, o, v, err)
	}
	return nil
}

// each runs a step for each of three elements, two at a time.
func (a *arm) each(run *engine.Run, o Op) error {
	vs, err := engine.Map(run, "map", 2, []int{0, 1, 2}, func(run *engine.Run, i int) (int, error) {
		return engine.Step(run, "element", func(context.Context) (int, error) { return 10_000*o.V + i, nil })
	})
	if err != nil {
		return a.take(run, o, 0, err)
	}
	for _, v := range vs {
		if err := a.take(run, o, v, nil); err != nil {
			return err
		}
	}
	return nil
}

// part interprets a body in its own scope. An error of the body ends only the body.
func (a *arm) part(run *engine.Run, o Op) {
	b := a.inner(string(o.Kind), o, o.Kind != Shield)
	var err error
	switch half := len(o.Body) / 2; o.Kind {
	case Timeout:
		inner := run.WithTimeout(o.For)
		if err = b.all(inner, o.Body); err == nil {
			err = b.ended(inner)
		}
	case Revoke:
		inner, cancel := run.WithCancel()
		err = b.all(inner, o.Body[:half])
		cancel()
		if err == nil {
			err = b.all(inner, o.Body[half:])
		}
		if err == nil {
			err = b.ended(inner)
		}
	case Shield:
		inner := run.WithoutCancel()
		if err = b.all(inner, o.Body); err == nil {
			err = b.ended(inner)
		}
	}
	b.settle(run)
	a.note(run, fmt.Sprint(o.Kind, o.V), err)
}

// drain awaits what is pending and, on the main branch, receives the signals that are left.
func (a *arm) drain(run *engine.Run) error {
	if err := a.ended(run); err != nil || a.name != "main" {
		return err
	}
	for _, name := range signals {
		for a.left[name] > 0 {
			v, err := named(name).Receive(run)
			if err := a.received(run, Op{Kind: Receive, Signal: name}, v, err == nil, err); err != nil {
				return err
			}
		}
	}
	return nil
}
