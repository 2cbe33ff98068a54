package w9

import (
	"context"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
	"github.com/weft-go/weft/signal"
)

func locals(run *engine.Run) (int, error) {
	f := charge.Go(run, 1)
	return f.Get(run)
}

func list(run *engine.Run) ([]int, error) {
	var fs []*future.Future[int]
	for n := range 3 {
		fs = append(fs, charge.Go(run, n))
	}
	return engine.All(run, fs...)
}

func table(run *engine.Run) (int, error) {
	fs := map[string]*future.Future[int]{"a": charge.Go(run, 1)}
	return fs["a"].Get(run)
}

// A type within the function is as local as its variables.
func localType(run *engine.Run) (int, error) {
	type pending struct {
		name string
		f    *future.Future[int]
	}
	p := pending{"a", charge.Go(run, 1)}
	return p.f.Get(run)
}

func cases(run *engine.Run) (engine.Case, error) {
	cs := []engine.Case{run.After(1), run.Cancelled()}
	return engine.Select(run, cs...)
}

func parameter(run *engine.Run, f *future.Future[int]) (int, error) { return f.Get(run) }

func returns(run *engine.Run) *future.Future[int] { return charge.Go(run, 1) }

// Functions that get a Run.
type service struct {
	handle func(run *engine.Run, n int) (int, error)
	flow   *engine.Workflow[int, int]
	paid   signal.Signal[int]
	eng    *engine.Engine
	h      *engine.Handle[int]
}

type handler interface {
	Handle(run *engine.Run) error
}

var handlers = map[string]func(run *engine.Run) error{}

var order = &engine.Workflow[int, int]{Name: "order", Func: func(run *engine.Run, n int) (int, error) { return n, nil }}

type function func(run *engine.Run) (*future.Future[int], error)

func (f function) do(run *engine.Run) (*future.Future[int], error) { return f(run) }

// A result is no future.
type result struct {
	run string
	n   int
}

func results(run *engine.Run, r *result) error {
	n, err := charge.Do(run, 1)
	r.n, r.run = n, run.ID()
	return err
}

func channelOf(ctx context.Context) chan int { return make(chan int) }

func derived(run *engine.Run) (int, error) {
	part, cancel := run.WithCancel()
	defer cancel()
	return charge.Do(part, 1)
}
