// Package w3 starts goroutines, and waits for them.
package w3

import (
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/weft-go/weft/engine"
)

func work() {}

func goes(run *engine.Run) {
	go work() // want `a go statement in workflow code: .*use engine.Go, engine.All or engine.Map \(W3\)`
}

func sends(run *engine.Run, c chan int) {
	c <- 1 // want `a send to a channel in workflow code: .*a future or a signal`
}

func receives(run *engine.Run, c chan int) int {
	return <-c // want `a receive from a channel in workflow code`
}

func ranges(run *engine.Run, c chan int) (n int) {
	for v := range c { // want `a range over a channel in workflow code`
		n += v
	}
	return n
}

func closes(run *engine.Run, c chan int) {
	close(c) // want `close of a channel in workflow code`
}

func selects(run *engine.Run, c chan int) {
	select { // want `select in workflow code: .*use engine.Select`
	case <-c:
	case c <- 1:
	default:
	}
}

func waits(run *engine.Run) {
	var wg sync.WaitGroup
	wg.Go(work) // want `sync.WaitGroup.Go in workflow code`
	wg.Wait()   // want `sync.WaitGroup.Wait in workflow code`
}

type guarded struct {
	sync.Mutex
	rw sync.RWMutex
	c  *sync.Cond
}

func locks(run *engine.Run, g *guarded) {
	g.Lock()     // want `sync.Mutex.Lock in workflow code`
	g.rw.RLock() // want `sync.RWMutex.RLock in workflow code`
	g.c.Wait()   // want `sync.Cond.Wait in workflow code`
	g.rw.RUnlock()
	g.Unlock()
}

func groups(run *engine.Run) error {
	var g errgroup.Group
	g.Go(func() error { return nil }) // want `errgroup.Group.Go in workflow code`
	return g.Wait()                   // want `errgroup.Group.Wait in workflow code`
}

func caller(run *engine.Run) int { return helper() }

func helper() int {
	c := make(chan int, 1)
	go func() { c <- 1 }() // want `a go statement in workflow code \(caller calls helper\)`
	return <-c             // want `a receive from a channel in workflow code \(caller calls helper\)`
}
