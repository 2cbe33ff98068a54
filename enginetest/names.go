package enginetest

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/storage"
)

// names are what runs are called that other runs have started. An id that the engine has made is
// another one in each play, so such a run is called by the operation that started it. Its
// methods may be called by many goroutines.
type names struct {
	mu       sync.Mutex
	by       map[string]doing  // what started a run, by its id
	logs     map[string]string // the id of a run, by its generation: see ofLog
	replacer *strings.Replacer
}

// made matches the ids that the engine makes for runs that are started by runs.
var made = regexp.MustCompile(`^wrun_[a-z2-7]{32}$`)

// learn notes which runs b is about, and what the checkpoints start that it appends.
func (n *names) learn(b storage.Batch, appended []journal.Appended) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, wf := range journal.WorkflowsIn(b) {
		if n.logs == nil {
			n.logs = map[string]string{}
		}
		n.logs[wf.Generation] = wf.ID
	}
	for _, a := range appended {
		for _, e := range a.Entry.Events {
			if e.Kind != checkpoint.KindStarted {
				continue
			}
			if n.by == nil {
				n.by = map[string]doing{}
			}
			n.by[e.Child] = doing{a.Workflow.ID, e.Operation}
			n.replacer = nil
		}
	}
}

// starter returns the operation that has started the run with this id. ok is false if it
// was a client.
func (n *names) starter(id string) (d doing, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d, ok = n.by[id]
	return d, ok
}

// of returns the name of the run with this id. An id of the user's is its own name.
func (n *names) of(id string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.name(id)
}

func (n *names) name(id string) string {
	d, ok := n.by[id]
	if !ok || !made.MatchString(id) {
		return id
	}
	return fmt.Sprintf("the run of operation %s of %s", d.operation, n.name(d.run))
}

// ofLog returns the name of the run with this generation, by which its checkpoints are stored.
func (n *names) ofLog(generation string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if id, ok := n.logs[generation]; ok {
		return n.name(id)
	}
	return generation
}

// replace replaces the ids in s by names.
func (n *names) replace(s string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.replacer == nil {
		var pairs []string
		for id := range n.by {
			if name := n.name(id); name != id {
				pairs = append(pairs, id, name)
			}
		}
		n.replacer = strings.NewReplacer(pairs...)
	}
	return n.replacer.Replace(s)
}
