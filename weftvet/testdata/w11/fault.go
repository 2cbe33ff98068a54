// Package w11 computes names, and compares errors with ==.
package w11

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

var (
	errSoldOut = errors.New("sold out")
	ErrClosed  = errors.New("closed")

	charge = &activity.Activity[int, int]{Name: "charge", Run: func(ctx context.Context, n int) (int, error) { return n, nil }}
)

func step(run *engine.Run, id string) (int, error) {
	return engine.Step(run, "load-"+id, func(context.Context) (int, error) { return 1, nil }) // want `the name of an operation is computed: a name is compared with the history and has to be the same in each replay; use a constant, and put what varies into the input \(W11\)`
}

func formatted(run *engine.Run) error {
	for n := range 3 {
		f := engine.Go(run, fmt.Sprintf("part-%d", n), func(run *engine.Run) (int, error) { return n, nil }) // want `the name of an operation is computed`
		if _, err := f.Get(run); err != nil {
			return err
		}
	}
	return nil
}

func mapped(run *engine.Run, in []string) ([]int, error) {
	return engine.Map(run, in[0], 0, in, func(run *engine.Run, s string) (int, error) { return len(s), nil }) // want `the name of an operation is computed`
}

func variable(run *engine.Run, urgent bool) (int, error) {
	name := "slow"
	if urgent {
		name = "fast"
	}
	return engine.Step(run, name, func(context.Context) (int, error) { return 1, nil }) // want `the name of an operation is computed`
}

func wrapper(run *engine.Run, name string) (int, error) {
	return engine.Step(run, name, func(context.Context) (int, error) { return 1, nil })
}

func throughWrapper(run *engine.Run, id string) (int, error) {
	return wrapper(run, "load-"+id) // want `the name of an operation is computed`
}

func definitions(run *engine.Run, id string) (int, error) {
	paid := &signal.Signal[int]{Name: "paid-" + id} // want `a computed name in workflow code`
	return paid.Receive(run)
}

func equal(run *engine.Run) (int, error) {
	n, err := charge.Do(run, 1)
	if err == errSoldOut { // want `== with errSoldOut in workflow code: an error that comes from the history is another value and wraps the sentinel; use errors.Is \(W11\)`
		return 0, nil
	}
	return n, err
}

func unequal(run *engine.Run) error {
	_, err := charge.Do(run, 1)
	if ErrClosed != err { // want `!= with ErrClosed in workflow code`
		return err
	}
	return nil
}

func ofWeft(run *engine.Run) bool {
	return run.Sleep(1) == engine.ErrCancelled // want `== with engine.ErrCancelled in workflow code`
}

func switches(run *engine.Run) string {
	_, err := charge.Do(run, 1)
	switch err {
	case nil:
		return "done"
	case errSoldOut, ErrClosed: // want `a case with errSoldOut in workflow code`
		return "none"
	case context.Canceled: // want `a case with context.Canceled`
		return "stopped"
	}
	return "failed"
}

func caller(run *engine.Run) bool {
	_, err := charge.Do(run, 1)
	return isSoldOut(err)
}

func isSoldOut(err error) bool {
	return err == errSoldOut // want `== with errSoldOut in workflow code \(caller calls isSoldOut\)`
}
