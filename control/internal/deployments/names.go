package deployments

import (
	"context"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/record"
)

// namesFresh is how long it counts that a living engine had a workflow.
const namesFresh = time.Second

// names remembers which workflows the living engines have, so that not every start reads the records
// of all engines.
type names struct {
	mu   lock.Mutex
	at   time.Time // when they were read
	have map[string]bool
}

// known reports whether a living engine has a workflow, or none lives: then nobody can tell.
func (n *names) known(ctx context.Context, e *engine.Engine, workflow string) (bool, error) {
	if n.has(workflow, time.Now()) {
		return true, nil
	}
	at := time.Now()
	engines, err := e.Engines(ctx)
	if err != nil && !record.Damaged(err) {
		return false, err
	}
	have, living := map[string]bool{}, err != nil // one whose record is damaged may live
	for _, i := range engines {
		if !i.Alive {
			continue
		}
		living = true
		for _, w := range i.Workflows {
			have[w] = true
		}
	}
	n.set(have, at)
	return have[workflow] || !living || err != nil, nil
}

func (n *names) has(workflow string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	age := now.Sub(n.at)
	return n.have[workflow] && age >= 0 && age < namesFresh
}

func (n *names) set(have map[string]bool, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.have, n.at = have, at
}
