package w3

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weft-go/weft/engine"
)

func branch(run *engine.Run) error {
	_, err := engine.Go(run, "b", func(run *engine.Run) (int, error) { return 1, nil }).Get(run)
	return err
}

func all(run *engine.Run) ([]int, error) {
	f := engine.Go(run, "b", func(run *engine.Run) (int, error) { return 1, nil })
	return engine.All(run, f)
}

func mapped(run *engine.Run) ([]int, error) {
	return engine.Map(run, "m", 2, []int{1, 2}, func(run *engine.Run, n int) (int, error) { return n, nil })
}

func selected(run *engine.Run) (bool, error) {
	late, stop := run.After(1), run.Cancelled()
	first, err := engine.Select(run, late, stop)
	return first == late, err
}

func inStep(run *engine.Run) (int, error) {
	return engine.Step(run, "s", func(ctx context.Context) (int, error) {
		c := make(chan int)
		go func() { c <- 1 }()
		select {
		case n := <-c:
			return n, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
}

// It does not wait.
var table = sync.OnceValue(func() []int { return []int{1, 2, 3} })

func onceValue(run *engine.Run) int { return table()[0] }

func counts(run *engine.Run) int64 {
	var n atomic.Int64
	n.Add(1)
	return n.Load()
}

var buffers = sync.Pool{New: func() any { return new([64]byte) }}

func pooled(run *engine.Run) {
	b := buffers.Get()
	buffers.Put(b)
}

func makes(run *engine.Run) int { return cap(make(chan int, 3)) }

// A method Lock of another type.
type door struct{ open bool }

func (d *door) Lock()       { d.open = false }
func (d *door) Wait() error { return nil }

func locksDoor(run *engine.Run, d *door) error {
	d.Lock()
	return d.Wait()
}

func server(c chan int, mu *sync.Mutex) {
	mu.Lock()
	go work()
	for range c {
		c <- <-c
	}
}

func negates(run *engine.Run, n int) int { return -n &^ +n }
