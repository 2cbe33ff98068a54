package world

import (
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/storage"
)

// mostHeads is how many heads of runs a World keeps.
const mostHeads = 10_000

// heads are the heads of runs that this process has written last. Others may have written them since. A nil *heads keeps
// none.
type heads struct {
	mu    lock.Mutex
	byRun map[string]kept
}

// A kept is a head as this process has written it.
type kept struct {
	*head
	alone bool // this process has written the one before it, too
}

// last returns the head of a run if it is likely that nobody has changed it since this process did: if this process has
// written two in a row, or has created the run. Else it returns nil.
func (hs *heads) last(run string) *head {
	if hs == nil {
		return nil
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if k := hs.byRun[run]; k.alone {
		return k.head
	}
	return nil
}

// keep records the outcome of a commit that changes the head of a run. before is nil if it creates the run.
func (hs *heads) keep(run string, before, after *head, outcome error) {
	if hs == nil {
		return
	}
	hs.mu.Lock()
	defer hs.mu.Unlock()
	k, ok := hs.byRun[run]
	if outcome != nil || after.Status.Ended() { // not known, or hardly needed
		delete(hs.byRun, run)
		return
	}
	if hs.byRun == nil {
		hs.byRun = map[string]kept{}
	}
	if !ok && len(hs.byRun) >= mostHeads {
		for other := range hs.byRun { // any one
			delete(hs.byRun, other)
			break
		}
	}
	h := *after
	h.run = run
	hs.byRun[run] = kept{&h, before == nil || ok && string(k.raw) == string(before.raw)}
}

// keepStaged records the outcome of a commit of several requests about a run.
func (hs *heads) keepStaged(run string, b storage.Batch, outcome error) {
	at := string(keys.World(run))
	var before, after *head
	for _, c := range b.If {
		if string(c.Key) == at && c.Kind == storage.IsEqual {
			before = &head{raw: c.Value}
		}
	}
	for _, o := range b.Ops {
		if string(o.Key) == at {
			after, _ = openHead(run, o.Value)
		}
	}
	hs.keep(run, before, after, outcome)
}
