package upkeep

import (
	"context"
	"time"

	"github.com/weft-go/weft/internal/worker"
)

// A task of the poll, with the state that it has for one incarnation.
type task interface{ look(context.Context) error }

// Duties returns the tasks in their order. Each looks at least once per PollInterval.
func Duties() []worker.Duty {
	return []worker.Duty{
		duty("expiry", func(l *worker.Incarnation) task {
			return &expiry{incarnation: l, places: make(chan struct{}, mostDismissing)}
		}),
		duty("stamp of the store", func(l *worker.Incarnation) task { return &stampCheck{incarnation: l} }),
		duty("housekeeping", func(l *worker.Incarnation) task { return &housekeeping{incarnation: l} }),
		duty("lists", func(l *worker.Incarnation) task { return &listing{incarnation: l} }),
	}
}

func duty(name string, begin func(l *worker.Incarnation) task) worker.Duty {
	return worker.Duty{Name: name, Begin: func(l *worker.Incarnation) func(context.Context) (time.Duration, error) {
		t := begin(l)
		return func(ctx context.Context) (time.Duration, error) { return l.Worker.PollInterval, t.look(ctx) }
	}}
}
