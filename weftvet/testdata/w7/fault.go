// Package w7 takes results past a step.
package w7

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/postgres"
)

type Order struct {
	ID    string
	Total int
	Lines []string
}

func variable(run *engine.Run) (int, error) {
	var total int
	_, err := engine.Step(run, "total", func(context.Context) (bool, error) {
		total = 7 // want `total is assigned in a step or an activity, and read outside it: a replay takes the outcome from the history and does not assign it; return the value from the function \(W7\)`
		return true, nil
	})
	return total, err
}

func counts(run *engine.Run) (n int, err error) {
	_, err = engine.Step(run, "count", func(context.Context) (bool, error) {
		n++ // want `n is assigned in a step`
		return true, nil
	})
	return n, err
}

func field(run *engine.Run) (int, error) {
	var o Order
	_, err := engine.Step(run, "load", func(context.Context) (bool, error) {
		o.Total = 7 // want `o.Total is assigned in a step`
		return true, nil
	})
	return o.Total, err
}

func whole(run *engine.Run) (Order, error) {
	o := Order{ID: "a"}
	_, err := engine.Step(run, "load", func(context.Context) (bool, error) {
		o.Total = 7 // want `o.Total is assigned in a step`
		return true, nil
	})
	return o, err
}

var charge = &activity.Activity[*Order, int]{Name: "charge", Run: func(ctx context.Context, o *Order) (int, error) { return 1, nil }}

func localPointer(run *engine.Run) (int, error) {
	o := &Order{}
	if _, err := engine.Step(run, "load", func(context.Context) (bool, error) {
		o.ID = "b" // want `o.ID is assigned in a step`
		return true, nil
	}); err != nil {
		return 0, err
	}
	return charge.Do(run, o)
}

func parameter(run *engine.Run, o *Order) (int, error) {
	if _, err := engine.Step(run, "load", func(context.Context) (bool, error) {
		o.Total = 3 // want `o.Total is assigned in a step`
		return true, nil
	}); err != nil {
		return 0, err
	}
	return o.Total + 1, nil
}

func element(run *engine.Run) (map[string]int, error) {
	m := map[string]int{}
	_, err := engine.Step(run, "load", func(context.Context) (bool, error) {
		m["a"] = 1 // want `m\["a"\] is assigned in a step`
		return true, nil
	})
	return m, err
}

func appends(run *engine.Run) ([]string, error) {
	var list []string
	_, err := engine.Step(run, "load", func(context.Context) (bool, error) {
		list = append(list, "a") // want `list is assigned in a step`
		return true, nil
	})
	return list, err
}

func address(run *engine.Run, b []byte) (Order, error) {
	var decoded Order
	_, err := engine.Step(run, "load", func(context.Context) (bool, error) {
		return true, json.Unmarshal(b, &decoded) // want `decoded is assigned in a step`
	})
	return decoded, err
}

func scans(run *engine.Run) (name string, err error) {
	_, err = postgres.Transact(run, "name", func(ctx context.Context, tx pgx.Tx) (bool, error) {
		return true, tx.QueryRow(ctx, "SELECT name FROM t").Scan(&name) // want `name is assigned in a step`
	})
	return name, err
}

func builds(run *engine.Run) (string, error) {
	var b strings.Builder
	_, err := engine.Step(run, "build", func(context.Context) (bool, error) {
		b.WriteString("a") // want `b is assigned in a step`
		return true, nil
	})
	return b.String(), err
}

func intoNextStep(run *engine.Run) (int, error) {
	var token string
	if _, err := engine.Step(run, "first", func(context.Context) (bool, error) {
		token = "a" // want `token is assigned in a step`
		return true, nil
	}); err != nil {
		return 0, err
	}
	return engine.Step(run, "second", func(context.Context) (int, error) { return len(token), nil })
}

func activities(run *engine.Run) (int, error) {
	var seen int
	a := &activity.Activity[int, int]{Name: "a", Run: func(ctx context.Context, n int) (int, error) {
		seen = n // want `seen is assigned in a step or an activity`
		return n, nil
	}}
	if _, err := a.Do(run, 1); err != nil {
		return 0, err
	}
	return seen, nil
}

func transactStep(run *engine.Run) (int, error) {
	var n, done int
	err := run.TransactStep("t", &done, func(ctx context.Context) error {
		n = 1 // want `n is assigned in a step`
		return nil
	})
	return n + done, err
}

// Fields of what the workflow is a method of.
type shop struct {
	loaded int
	stock  int
	cache  map[string]int
}

func (s *shop) handle(run *engine.Run) (int, error) {
	if _, err := engine.Step(run, "direct", func(context.Context) (bool, error) {
		s.cache["a"] = 1      // want `s.cache\["a"\] is assigned in a step`
		return true, s.load() // want `the field loaded is assigned in a step or an activity, by shop.load, and read outside it`
	}); err != nil {
		return 0, err
	}
	if _, err := engine.Step(run, "value", s.refill); err != nil { // want `the field stock is assigned in a step or an activity, by shop.refill`
		return 0, err
	}
	return s.loaded + s.stock + s.cache["a"], nil
}

func (s *shop) load() error { s.loaded = 1; return nil }

func (s *shop) refill(context.Context) (bool, error) { s.fill(10); return true, nil }

func (s *shop) fill(n int) { s.stock += n }

func throughParameter(run *engine.Run, o *Order) (int, error) {
	if _, err := engine.Step(run, "price", func(context.Context) (bool, error) {
		price(o) // want `the field Total is assigned in a step or an activity, by price`
		return true, nil
	}); err != nil {
		return 0, err
	}
	return o.Total, nil
}

func price(o *Order) { o.Total = 9 }

func inWrapper(run *engine.Run) (int, error) {
	n := 0
	err := try(run, "x", func() error {
		n = 1 // want `n is assigned in a step`
		return nil
	})
	return n, err
}

func try(run *engine.Run, name string, f func() error) error {
	_, err := engine.Step(run, name, func(context.Context) (bool, error) { return true, f() })
	return err
}
