package run

import (
	"time"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// When a run continues as new, its earlier lives are of no use any more. The commit that begins the
// next life removes up to mostRemoved of their records, and later commits of the run remove the
// checkpoints that are left, up to removedAtOnce each. If the run does not get that far, an entry
// (exp) has an engine remove them after remainsKept: see upkeep, former_lives.
const (
	mostRemoved   = 1000
	removedAtOnce = 50
	remainsKept   = time.Hour
)

// remains are what is stored of the earlier lives of a run.
type remains struct {
	checkpoints []span
	more        bool   // there are other records
	entry       []byte // the last one by which an engine removes them; nil: there is none
}

// A span is a range of consecutive checkpoint numbers, with both ends.
type span struct{ first, last uint64 }

// noteStored notes that this life has the checkpoint n.
func (x *Execution) noteStored(n uint64) {
	last := len(x.stored) - 1
	switch {
	case last < 0 || n > x.stored[last].last+1:
		x.stored = append(x.stored, span{n, n})
	case n == x.stored[last].last+1:
		x.stored[last].last = n
	}
}

// remove returns the deletions of up to n checkpoints, and what is left then. With the last one the
// entry is deleted, too.
func (r remains) remove(log keys.Log, n int) (ops []storage.Op, left remains) {
	left = r
	left.checkpoints = nil
	for _, s := range r.checkpoints {
		for ; s.first <= s.last && len(ops) < n; s.first++ {
			ops = append(ops, storage.Delete(log.Checkpoint(s.first)))
		}
		if s.first <= s.last {
			left.checkpoints = append(left.checkpoints, s)
		}
	}
	if left.none() && r.entry != nil {
		ops, left.entry = append(ops, storage.Delete(r.entry)), nil
	}
	return ops, left
}

func (r remains) none() bool { return len(r.checkpoints) == 0 && !r.more }

// leaveBehind adds to l the deletions of what this life and earlier ones have stored, as far as
// there is room. It returns what is left.
func (x *Execution) leaveBehind(l *journal.Life) (left remains, err error) {
	room := min(mostRemoved, x.host.room(&journal.Change{If: l.If, Ops: l.Ops})-2) // and the entry, old and new
	records, more, err := x.formerRecords(l, max(room, 0))
	if err != nil {
		return left, err
	}
	l.Ops = append(l.Ops, records...)
	all := remains{append(x.remains.checkpoints[:len(x.remains.checkpoints):len(x.remains.checkpoints)], x.stored...), more, x.remains.entry}
	ops, left := all.remove(x.Hold.Workflow.Log(), max(room-len(records), 0))
	l.Ops = append(l.Ops, ops...)
	if left.none() {
		return left, nil
	}
	now := x.host.Now()
	if left.entry != nil { // it stays in any case, or a run that continues often would put it off for ever
		if at, err := keys.Expires(left.entry); err == nil && at.Sub(now) > remainsKept/2 {
			return left, nil
		}
	}
	left.entry = keys.FormerLife(now.Add(remainsKept), x.ID, l.Workflow.Generation)
	l.Ops = append(l.Ops, storage.Put(left.entry, nil))
	return left, nil
}

// formerRecords returns the deletions of up to n records of operations of all lives before l, and
// whether there are more.
func (x *Execution) formerRecords(l *journal.Life, n int) (ops []storage.Op, more bool, err error) {
	next := *x.Hold.Workflow
	next.First, next.Updates = l.First, l.Updates
	for _, r := range recordRanges(x.ID) {
		r.Limit = keys.PayloadPage
		for e, err := range storage.All(x.Ctx, x.store, r) {
			if err != nil {
				return nil, false, err
			}
			switch former, err := IsFormer(&next, e.Key); {
			case err != nil:
				return nil, false, err
			case !former:
			case len(ops) == n:
				return ops, true, nil
			default:
				ops = append(ops, storage.Delete(e.Key))
			}
		}
	}
	return ops, false, nil
}

// recordRanges are the ranges of the records of a workflow's operations.
func recordRanges(id string) []storage.Range {
	return []storage.Range{keys.ActivitiesOf(id), keys.BeatsOf(id), keys.ChildrenOf(id)}
}

// FormerRanges are the ranges in which the records of earlier lives of wf are: see IsFormer.
func FormerRanges(wf *journal.Workflow) []storage.Range {
	return append(recordRanges(wf.ID), wf.FormerCheckpoints())
}

// IsFormer reports whether a key in one of FormerRanges belongs to an earlier life of wf.
func IsFormer(wf *journal.Workflow, key []byte) (bool, error) {
	if wf.Log().Has(key) {
		return true, nil
	}
	operation, err := keys.Operation(key)
	return wf.Former(operation), err
}
