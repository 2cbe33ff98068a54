package journal

import (
	"github.com/weft-go/weft/storage"
)

// An Appended is a checkpoint that a batch appends.
type Appended struct {
	Workflow *Workflow // as the batch leaves it, or expects it to be
	Entry    Entry
}

// AppendedBy returns the checkpoints that b appends, in the order of its operations. It leaves out what cannot be
// decoded. It is for whoever watches what is committed.
func AppendedBy(b storage.Batch) (all []Appended) {
	workflows := WorkflowsIn(b)
	for _, o := range b.Ops {
		if o.Kind != storage.PutOp {
			continue
		}
		for _, wf := range workflows {
			if !wf.Log().Has(o.Key) {
				continue
			}
			if e, own, err := OpenEntry(wf, storage.Entry{Key: o.Key, Value: o.Value}); own && err == nil {
				all = append(all, Appended{wf, e})
			}
			break
		}
	}
	return all
}

// WorkflowsIn returns the workflows whose records b writes or expects, the former first. See AppendedBy.
func WorkflowsIn(b storage.Batch) (all []*Workflow) {
	see := func(key, value []byte) {
		parts, err := storage.SplitKey(key)
		if err != nil || len(parts) != 2 || parts[0] != "wf" || len(value) == 0 {
			return
		}
		if wf, err := OpenWorkflow(parts[1], value); err == nil && !wf.Tombstone() {
			all = append(all, wf)
		}
	}
	for _, o := range b.Ops {
		see(o.Key, o.Value)
	}
	for _, c := range b.If {
		see(c.Key, c.Value)
	}
	return all
}
