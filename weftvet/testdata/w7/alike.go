package w7

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
)

func returned(run *engine.Run) (int, error) {
	total, err := engine.Step(run, "total", func(context.Context) (int, error) {
		total := 7
		total++
		return total, nil
	})
	return total, err
}

// The variable gets the result of the step.
func same(run *engine.Run) (total int, err error) {
	total, err = engine.Step(run, "total", func(context.Context) (int, error) {
		total = 7
		return total, nil
	})
	return total, err
}

func errOfStep(run *engine.Run, f func() error) (err error) {
	_, err = engine.Step(run, "f", func(context.Context) (bool, error) {
		if err = f(); err != nil {
			return false, err
		}
		return true, nil
	})
	return err
}

func filled(run *engine.Run) (Order, error) {
	o, err := engine.Step(run, "load", func(context.Context) (Order, error) {
		var o Order
		o.Total = 7
		o.Lines = append(o.Lines, "a")
		price(&o)
		return o, json.Unmarshal([]byte("{}"), &o)
	})
	o.ID += "x"
	return o, err
}

func onlyInside(run *engine.Run) (int, error) {
	var scratch []int
	return engine.Step(run, "n", func(context.Context) (int, error) {
		scratch = append(scratch, 1)
		return len(scratch), nil
	})
}

func branch(run *engine.Run) (int, error) {
	n := 0
	_, err := engine.Go(run, "b", func(run *engine.Run) (bool, error) {
		n = 1 // a replay does it again
		return true, nil
	}).Get(run)
	return n, err
}

func closure(run *engine.Run, list []string) int {
	n := 0
	each(list, func(s string) { n += len(s) })
	return n
}

func each(list []string, f func(string)) {
	for _, s := range list {
		f(s)
	}
}

func onlyReads(run *engine.Run, o Order) (int, error) {
	o.Total = 8
	return engine.Step(run, "read", func(context.Context) (int, error) { return o.Total, nil })
}

// A service that steps act on, and the workflow never looks at.
type bank struct {
	balance int
	calls   int
}

func (b *bank) take(n int) error { b.balance -= n; b.calls++; return nil }

func service(run *engine.Run, b *bank) (bool, error) {
	return engine.Step(run, "take", func(context.Context) (bool, error) {
		b.calls++
		return true, b.take(3)
	})
}

func serviceTwice(run *engine.Run, b *bank) error {
	if _, err := service(run, b); err != nil {
		return err
	}
	_, err := service(run, b)
	return err
}

type till struct{ bank *bank }

func (t *till) handle(run *engine.Run) (bool, error) {
	return engine.Step(run, "take", func(context.Context) (bool, error) { return true, t.bank.take(1) })
}

// A test counts how often a step is executed, and looks at it outside of the run.
func counted() (executed int, w *engine.Workflow[int, bool]) {
	w = &engine.Workflow[int, bool]{Name: "w", Func: func(run *engine.Run, n int) (bool, error) {
		return engine.Step(run, "s", func(context.Context) (bool, error) { executed++; return true, nil })
	}}
	return executed, w
}

func buildsInside(run *engine.Run) (string, error) {
	return engine.Step(run, "b", func(context.Context) (string, error) {
		var b strings.Builder
		b.WriteString("a")
		return b.String(), nil
	})
}

var errGone = errors.New("gone")

func asInside(run *engine.Run, err error) (bool, error) {
	return engine.Step(run, "as", func(context.Context) (bool, error) {
		var failed *activity.Error
		return errors.As(err, &failed), nil
	})
}

func readsResult(run *engine.Run) (string, error) {
	o, err := filled(run)
	if errors.Is(err, errGone) {
		return "", err
	}
	return o.ID, nil
}

type ledger struct{ entries int }

func (l *ledger) add() { l.entries++ }

// A literal sets the field, and does not read it.
func setsField(run *engine.Run, l *ledger) (*ledger, error) {
	_, err := engine.Step(run, "add", func(context.Context) (bool, error) { l.add(); return true, nil })
	return &ledger{entries: 1}, err
}
