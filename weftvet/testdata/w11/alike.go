package w11

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
)

const prefix = "load"

func literalName(run *engine.Run) (int, error) {
	return engine.Step(run, "load", func(context.Context) (int, error) { return 1, nil })
}

func constantName(run *engine.Run) (int, error) {
	return engine.Step(run, prefix+"-all", func(context.Context) (int, error) { return 1, nil })
}

func oneValue(run *engine.Run) (int, error) {
	name := "load"
	return engine.Step(run, name, func(context.Context) (int, error) { return 1, nil })
}

func wrapped(run *engine.Run) (int, error) { return wrapper(run, "load") }

func wrappedTwice(run *engine.Run) (int, error) { return outer(run, "load") }

func outer(run *engine.Run, name string) (int, error) { return wrapper(run, name) }

// What varies is the input, or the id of a child.
func varies(run *engine.Run, id string, w *engine.Workflow[string, int]) (int, error) {
	return w.AsChild(engine.ChildOptions{ID: "child-" + id}).Do(run, "in-"+id)
}

// No replay compares the name of a label.
func labels(run *engine.Run, tags []string) (errs error) {
	for _, tag := range tags {
		errs = errors.Join(errs, run.SetLabel("tag-"+tag, "yes"))
		errs = errors.Join(errs, label(run, "label-"+tag))
	}
	return errs
}

func label(run *engine.Run, name string) error { return run.SetLabel(name, "yes") }

// A definition that is made before the engine starts.
func newCharge(region string) *activity.Activity[int, int] {
	return &activity.Activity[int, int]{Name: "charge-" + region, Run: func(ctx context.Context, n int) (int, error) { return n, nil }}
}

func is(run *engine.Run) (int, error) {
	n, err := charge.Do(run, 1)
	if errors.Is(err, errSoldOut) {
		return 0, nil
	}
	return n, err
}

func isNil(run *engine.Run) bool {
	_, err := charge.Do(run, 1)
	return err == nil
}

func chosen(run *engine.Run) (bool, error) {
	late := run.After(1)
	first, err := engine.Select(run, late, run.Cancelled())
	return first == late, err
}

// Readers return io.EOF itself.
func reads(run *engine.Run, s string) (n int) {
	r := bufio.NewReader(strings.NewReader(s))
	for {
		if _, err := r.ReadByte(); err == io.EOF {
			return n
		}
		n++
	}
}

type soldOut struct{}

func (soldOut) Error() string { return "sold out" }

// What errors.Is calls.
func (soldOut) Is(target error) bool { return target == errSoldOut }

func usesIs(run *engine.Run) bool { return soldOut{}.Is(ErrClosed) }

func sameValue(run *engine.Run, err error) bool {
	first := err
	return first == err
}

func client(err error) bool { return err == errSoldOut }

func inStep(run *engine.Run, err error) (bool, error) {
	return engine.Step(run, "s", func(context.Context) (bool, error) { return err == errSoldOut, nil })
}

func switchTrue(run *engine.Run) string {
	_, err := charge.Do(run, 1)
	switch {
	case errors.Is(err, ErrClosed):
		return "closed"
	}
	return ""
}
