package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/weft-go/weft/activity"
)

var errGoexit = errors.New("called runtime.Goexit")

func panicError(p any) error {
	if err, ok := p.(error); ok {
		return fmt.Errorf("panic: %w", err)
	}
	return fmt.Errorf("panic: %v", p)
}

// attempt begins the next attempt of o in a goroutine of its own, as soon as there
// is room for one. Its answer comes by mail, once: what it came to, or that its
// time was up.
func (x *execution) attempt(o *operation) {
	if !x.eng.enter(x) {
		x.ops.queued = append(x.ops.queued, o)
		return
	}
	info := x.info(o)
	number := info.Attempt
	ctx, cancel := context.WithCancelCause(x.ctx)
	a := &attempt{number: number, cancel: cancel}
	o.working = a
	x.ops.working++
	x.attempts.Add(1)

	timeout := o.call.Policy.Timeout
	var expiry *time.Timer
	if timeout > 0 {
		info.Deadline = x.eng.now().Add(timeout)
		expiry = time.AfterFunc(timeout, func() {
			cancel(activity.ErrTimeout)
			x.post(post{op: o, attempt: a, answer: o.timedOut(number, timeout)})
		})
	}
	ctx = activity.NewContext(ctx, info)
	go func() {
		answer := &answer{attempt: number}
		defer func() {
			if answer.failure != nil && context.Cause(ctx) == activity.ErrTimeout {
				answer = o.timedOut(number, timeout)
			}
			if expiry != nil {
				expiry.Stop()
			}
			cancel(nil)
			x.post(post{op: o, attempt: a, answer: answer, returned: true})
			x.eng.leave()
			x.attempts.Done()
		}()
		x.call(ctx, o.call, answer)
	}()
}

// awaitAttempts waits until all attempts have returned; once everything is to
// stop, for no longer than StopTimeout. It is called when x is driven no more.
func (x *execution) awaitAttempts() {
	if x.ops.working == 0 {
		x.attempts.Wait() // the last one, if any, is about to end
		return
	}
	returned := make(chan struct{})
	go func() {
		x.attempts.Wait()
		close(returned)
	}()
	select {
	case <-returned:
		return
	case <-x.life.ctx.Done():
	}
	patience := time.NewTimer(x.eng.config.StopTimeout)
	defer patience.Stop()
	select {
	case <-returned:
	case <-patience.C:
		x.eng.log.Error("weft: activity does not heed its context; its goroutine is left behind", "workflow", x.id, "type", x.def.name)
	}
}

// info is what o's next attempt may know of itself.
func (x *execution) info(o *operation) activity.Info {
	return activity.Info{
		WorkflowID:   x.id,
		Workflow:     x.def.name,
		Activity:     o.name,
		Operation:    o.id,
		Attempt:      o.attempt + o.lost + 1,
		FencingToken: x.hold.Head,
	}
}

func (o *operation) timedOut(number int, after time.Duration) *answer {
	return &answer{attempt: number, failure: &failure{
		message:  fmt.Sprintf("timed out after %v", after),
		sentinel: activity.ErrTimeout.Error(),
	}}
}

// call runs the function. Whatever it does ends in an answer: a panic and a
// Goexit are failures, and so is a result that cannot be stored, for which the
// effect is not repeated.
func (x *execution) call(ctx context.Context, c *activity.Call, a *answer) {
	a.failure = &failure{message: errGoexit.Error()} // unless it returns
	defer func() {
		if p := recover(); p != nil {
			f := fail(panicError(p), string(debug.Stack()), nil)
			a.failure = &f
		}
	}()
	v, err := c.Run(ctx)
	if err == nil {
		a.failure = nil
		if a.result, err = x.eng.encode(v); err != nil {
			f := fail(fmt.Errorf("result: %w", err), "", nil)
			a.failure, a.final = &f, true
		}
		return
	}
	f := fail(err, "", slices.Concat(c.Policy.Errors, x.def.errors))
	a.failure, a.final = &f, activity.IsPermanent(err)
}

// encode encodes v within the engine's limits.
func (e *Engine) encode(v any) (p payload, err error) {
	defer func() {
		if r := recover(); r != nil {
			p, err = payload{}, fmt.Errorf("encode %T: %w", v, panicError(r))
		}
	}()
	if p, err = e.codecs.encode(v); err != nil {
		return payload{}, err
	}
	if len(p.data) > e.maxPayload {
		return payload{}, fmt.Errorf("encode %T: %d bytes, at most %d", v, len(p.data), e.maxPayload)
	}
	return p, nil
}

// match is the first of the users' sentinels that err is.
func match(err error, sentinels []error) error {
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return s
		}
	}
	return nil
}

// named is the sentinel with a text.
func named(text string, lists ...[]error) error {
	for _, list := range lists {
		for _, s := range list {
			if recordable(s.Error()) == text {
				return s
			}
		}
	}
	return nil
}

func isCancelled(err error) (is bool) {
	defer func() { _ = recover() }() // of a user's Is or Unwrap
	return errors.Is(err, ErrCancelled)
}
