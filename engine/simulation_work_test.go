package engine_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

// A chore is what a simulated run is to do, one thing after the other.
type chore struct {
	Do string
	V  int // names it among all; its result
	Ms int // how long it takes or waits
}

var choreKinds = []string{"step", "plain", "fenced", "fenced", "settled", "mail", "both", "nap", "hear", "hook", "kid", "again"}

// A shift is what a life of a simulated run begins with: what is to be done, and what the lives
// before have done.
type shift struct {
	Chores []chore
	All    []string
	Naps   int
}

func drawChores(dice *rand.Rand, v *int, most int, kinds []string) (cs []chore) {
	for range 1 + dice.IntN(most) {
		*v++
		cs = append(cs, chore{oneOfThese(dice, kinds...), *v, 1 + dice.IntN(100)})
	}
	return cs
}

// heard counts the signals that chores receive.
func (s *simulation) hears(cs []chore) (n int) {
	for _, c := range cs {
		if c.Do == "hear" {
			n++
		}
	}
	return n
}

// promised is the result of a run that is not cancelled.
func promised(cs []chore) (all []string) {
	heard := 0
	for _, c := range cs {
		switch c.Do {
		case "nap", "again":
		case "hear":
			all = append(all, fmt.Sprint("heard ", heard))
			heard++
		case "hook":
			all = append(all, paidFor(c.V))
		case "both":
			all = append(all, fmt.Sprint(c.V), fmt.Sprint(c.V+1000))
		default:
			all = append(all, fmt.Sprint(c.V))
		}
	}
	return all
}

// A host is a process with an engine.
type host struct {
	*opening
	eng     *engine.Engine
	end     context.CancelFunc
	over    chan struct{}
	leaving bool // it was told to stop
}

// A ledger is what has happened outside: effects, by their keys. As a target it
// refuses tokens that are lower than what it has seen, where it is asked to.
type ledger struct {
	done  map[string]bool
	seen  map[string]uint64
	asked map[string]int
}

var (
	errLostReply = errors.New("the reply is lost")
	errStale     = errors.New("stale token")
	errRefused   = errors.New("refused")
	word         = &signal.Signal[string]{Name: "word"}
	ask          = &engine.Update[int, int]{Name: "ask", Errors: []error{errRefused}}
	invoices     = &signal.Hook[string]{Name: "paid"}
	far          = &engine.Value[int]{Name: "far"}
)

// invoice is the token of the hook of a chore, and paidFor what it is resumed with.
func invoice(v int) string { return fmt.Sprint("invoice/", v) }
func paidFor(v int) string { return fmt.Sprint("paid ", v) }

// awaitPayment opens the hook of a chore until it is resumed. Every other one stays open until the run ends.
func awaitPayment(run *engine.Run, v int) (string, error) {
	hook, err := invoices.Open(run, &signal.HookOptions{Token: invoice(v)})
	if err != nil {
		return "", err
	}
	got, err := hook.Receive(run)
	if err == nil && v%2 == 0 {
		err = hook.Dispose(run)
	}
	return got, err
}

// refuse refuses every third update.
func refuse(v int) error {
	if v%3 == 0 {
		return errRefused
	}
	return nil
}

// hash draws from the seed and what is given, whoever comes first.
func (s *simulation) hash(n int, of ...any) int {
	h := fnv.New64a()
	fmt.Fprint(h, s.seed, of)
	return int(h.Sum64() >> 33 % uint64(n))
}

// takes is how long an attempt takes: no two of them the same.
func (s *simulation) takes(ctx context.Context, v int) time.Duration {
	i := activity.InfoFrom(ctx)
	most := 60_000_000
	if s.hash(5, "long", i.WorkflowID, v, i.Attempt) == 0 {
		most = 320_000_000 // less than what may settle
	}
	return time.Duration(1 + s.hash(most, "takes", i.WorkflowID, v, i.Attempt))
}

// nap is d, unless ctx ends before.
func nap(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// plain is the work of a step and of an activity without a key, on h.
func (s *simulation) plain(ctx context.Context, h *host, v int) (int, error) {
	defer s.laws.begins(ctx, h.opening, false)()
	if err := nap(ctx, s.takes(ctx, v)); err != nil {
		return 0, err
	}
	i := activity.InfoFrom(ctx)
	if i.Attempt == 1 && v%4 == 0 && i.Activity == "plain" {
		return 0, errBroke
	}
	return v, nil
}

// effectKey names an effect. After a reset an operation begins again under another id, and so does a child: each has
// the effect again.
func effectKey(id, operation, key string) string {
	return fmt.Sprint(key, " of ", operation, " of ", id)
}

// effect is the work of an activity with a key: it has its effect at most once where
// it asks before it tries again.
func (s *simulation) effect(ctx context.Context, h *host, v int, fenced, once bool) (int, error) {
	defer s.laws.begins(ctx, h.opening, true)()
	i := activity.InfoFrom(ctx)
	d := s.takes(ctx, v)
	if heeds := s.hash(2, "heeds", i.WorkflowID, v, i.Attempt) == 0; heeds {
		if err := nap(ctx, d); err != nil {
			return 0, err
		}
	} else {
		time.Sleep(d) // the request is on its way, whatever becomes of its sender
	}
	s.laws.mu.Lock()
	defer s.laws.mu.Unlock()
	key := effectKey(i.WorkflowID, i.Operation, i.IdempotencyKey)
	if fenced {
		if i.FencingToken < s.ledger.seen[key] {
			s.meet("stale tokens refused")
			return 0, errStale
		}
		s.ledger.seen[key] = i.FencingToken
	}
	if s.hash(6, "no effect", i.WorkflowID, v, i.Attempt) == 0 && i.Attempt < 3 {
		return 0, activity.NoEffect(errBroke)
	}
	switch {
	case s.ledger.done[key] && once:
		s.laws.wrong("AC: the effect of %s of %s, %q, is had twice", i.Operation, i.WorkflowID, key)
	case s.ledger.done[key]:
		s.meet("effects repeated")
	}
	s.ledger.done[key] = true
	if s.hash(4, "reply", i.WorkflowID, v, i.Attempt) == 0 && i.Attempt < 3 {
		return 0, errLostReply
	}
	return v, nil
}

// verify is what an honest target tells.
func (s *simulation) verify(ctx context.Context, v int, fenced bool) (activity.Verification[int], error) {
	i := activity.InfoFrom(ctx)
	if err := nap(ctx, s.takes(ctx, v)/4); err != nil {
		return activity.Verification[int]{}, err
	}
	s.laws.mu.Lock()
	defer s.laws.mu.Unlock()
	key := effectKey(i.WorkflowID, i.Operation, i.IdempotencyKey)
	s.ledger.asked[key]++
	s.meet("verifiers asked")
	if fenced {
		s.ledger.seen[key] = max(s.ledger.seen[key], i.FencingToken)
	}
	switch {
	case s.ledger.asked[key] == 1 && s.hash(4, "unsure", i.WorkflowID, v) == 0:
		return activity.Indeterminate[int]("ask again"), nil
	case s.ledger.done[key]:
		return activity.CompletedWithResult(v), nil
	}
	return activity.NotCompleted[int](), nil
}

// definitions are the workflows, as h has them.
func (s *simulation) definitions(h *host) (work *engine.Workflow[shift, []string], all []engine.Definition) {
	soon := activity.Retry{MaxAttempts: -1, Backoff: 1, MaxBackoff: 1}
	key := func(v int) string { return fmt.Sprint("order/", v) }
	const timeout = 165*time.Millisecond + 137*time.Microsecond
	plain := &activity.Activity[int, int]{Name: "plain", Retry: soon, Run: func(ctx context.Context, v int) (int, error) { return s.plain(ctx, h, v) }}
	keyed := func(name string, fenced, once bool) *activity.Activity[int, int] {
		a := &activity.Activity[int, int]{
			Name: name, Retry: soon, Timeout: timeout, IdempotencyKey: key,
			Run: func(ctx context.Context, v int) (int, error) { return s.effect(ctx, h, v, fenced, once) },
		}
		if a.Idempotent = !once; once {
			a.Verify = func(ctx context.Context, v int) (activity.Verification[int], error) { return s.verify(ctx, v, fenced) }
			a.VerifyRetry, a.VerifyFences = soon, fenced
		}
		return a
	}
	fenced, settled, mail := keyed("fenced", true, true), keyed("settled", false, true), keyed("mail", false, false)
	kid := &engine.Workflow[chore, int]{Name: "kid", Func: func(run *engine.Run, c chore) (int, error) {
		if err := s.sleep(run, 0, c.Ms); err != nil {
			return 0, err
		}
		return fenced.Do(run, c.V)
	}}
	newest := s.newest(h)
	work = &engine.Workflow[shift, []string]{Name: "work", Func: func(run *engine.Run, begun shift) (all []string, err error) {
		all, naps := begun.All, begun.Naps
		if err := ask.Handle(run, refuse, func(run *engine.Run, v int) (int, error) {
			own := activity.Options{Timeout: timeout + time.Duration(1+v%10)*1013*time.Microsecond} // no two attempts of a run end at the same time
			return fenced.With(own).Do(run, v)
		}); err != nil {
			return nil, err
		}
		for i, c := range begun.Chores {
			var v any = c.V
			if c.V%3 == 0 {
				if err := run.SetLabel("at", fmt.Sprint(c.Do, c.V)); err != nil {
					return nil, err
				}
			}
			if c.V%5 == 0 || s.builds() {
				if err := s.spell(run, h, newest, c.V); err != nil {
					return nil, err
				}
			}
			if c.V%5 == 0 {
				if err := far.Set(run, len(all)); err != nil {
					return nil, err
				}
			}
			switch c.Do {
			case "step":
				v, err = engine.Step(run, "step", func(ctx context.Context) (int, error) { return s.plain(ctx, h, c.V) })
			case "plain":
				v, err = plain.Do(run, c.V)
			case "fenced":
				v, err = fenced.Do(run, c.V)
			case "settled":
				v, err = settled.Do(run, c.V)
			case "mail":
				v, err = mail.Do(run, c.V)
			case "both":
				a, b := fenced.Go(run, c.V), plain.Go(run, c.V+1000)
				var first int
				if first, err = a.Get(run); err == nil {
					all = append(all, fmt.Sprint(first))
					v, err = b.Get(run)
				}
			case "nap":
				v, err = nil, s.sleep(run, naps, c.Ms)
				naps++
			case "hear":
				v, err = word.Receive(run)
			case "hook":
				v, err = awaitPayment(run, c.V)
			case "kid":
				v, err = kid.Do(run, c)
			case "again":
				if c.V%2 == 0 { // leave something behind
					plain.Go(run, c.V+2000)
					kid.AsChild(engine.ChildOptions{OnParentEnd: engine.ParentEnd(c.V / 2 % 3)}).Go(run, chore{V: c.V + 3000, Ms: c.Ms})
					err = s.sleep(run, naps, c.Ms)
					naps++
				}
				if err == nil {
					err = engine.ContinueAsNew(run, shift{begun.Chores[i+1:], all, naps})
				}
			}
			if err != nil {
				return nil, err
			}
			if v != nil {
				all = append(all, fmt.Sprint(v))
			}
		}
		return all, nil
	}}
	if newest > 0 {
		work.Versions = map[string]int{"spelling": newest}
	}
	return work, []engine.Definition{work, kid}
}

// sleep is the k-th of a run.
func (s *simulation) sleep(run *engine.Run, k, ms int) error {
	d := time.Duration(5*ms)*time.Millisecond + 613*time.Microsecond
	s.laws.sleeps(run.ID(), k, run.Now(), d)
	return run.Sleep(d)
}
