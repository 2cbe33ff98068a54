package run

import (
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/storage"
)

// Limits of the values that a workflow publishes.
const (
	MaxValues     = 100
	MaxValueBytes = 256 << 10 // of one value, encoded
)

// Publish is engine.Value.Set.
//
// As a label, a value is no operation. It is stored with the next checkpoint that the driver
// writes while every branch waits: see atRest. A replay does not store again what it sets before
// it reads such a checkpoint, because a later value may have replaced it. The error depends only
// on what the function itself has done.
func (r *Handle) Publish(name string, v any) error {
	if err := r.enter("set value " + name); err != nil {
		return err
	}
	if err := payload.CheckName("name of value", name, keys.MaxName); err != nil {
		return err
	}
	x := r.x
	p, err := x.host.encode(v)
	switch {
	case err != nil:
		return fmt.Errorf("%w: value %q: %w", weft.ErrInvalid, name, err)
	case len(p.Data) > MaxValueBytes:
		return payload.Invalid("value", name, fmt.Sprintf("has %d bytes, at most %d", len(p.Data), MaxValueBytes))
	}
	return x.values.set(value{name, p})
}

// values are those that the function of a run has set.
type values struct {
	names   map[string]bool
	pending []value   // that are not stored, in the order in which their names came
	since   time.Time // when the first of these was set
}

// A value is one that the function has set.
type value struct {
	name string
	payload.Payload
}

// set adds v, in place of another value of its name that is not stored.
func (vs *values) set(v value) error {
	if !vs.names[v.name] && len(vs.names) == MaxValues {
		return payload.Invalid("value", v.name, fmt.Sprintf("is one too many: a workflow has at most %d", MaxValues))
	}
	if vs.names == nil {
		vs.names = map[string]bool{}
	}
	vs.names[v.name] = true
	if i := slices.IndexFunc(vs.pending, func(p value) bool { return p.name == v.name }); i >= 0 {
		vs.pending[i] = v
		return nil
	}
	if len(vs.pending) == 0 {
		vs.since = time.Now()
	}
	vs.pending = append(vs.pending, v)
	return nil
}

// due returns how long it is until the values are stored by themselves, and whether any are to be.
func (vs *values) due() (wait time.Duration, ok bool) {
	return soon - time.Since(vs.since), len(vs.pending) > 0
}

// Limits of the values in one checkpoint, beside those of the store. A checkpoint with something
// else has room for a few. Most of the time that is all of them. If not, checkpoints that have
// nothing else store the first ones.
const (
	mostBeside = 16
	mostAlone  = Spare / 2 // the rest of the room is for labels
)

// first returns the pending values that one checkpoint stores: all of them, if the others need no
// checkpoint of their own before that one.
func (x *Execution) first() (vs []value, all bool) {
	if n := x.values.within(max(min(mostBeside, x.host.MaxOps-Spare), 0), x.host.MaxBytes/8); n == len(x.values.pending) {
		return x.values.pending, true
	}
	return x.values.pending[:max(x.values.within(mostAlone, x.host.MaxBytes), 1)], false
}

// within returns how many of the pending values are at most so many, and have at most so many
// bytes together.
func (vs *values) within(most, bytes int) (n int) {
	for _, v := range vs.pending {
		if bytes -= len(v.name) + len(v.Data); n == most || bytes < 0 {
			break
		}
		n++
	}
	return n
}

// fit reports whether the next checkpoint can store all values.
func (x *Execution) fit() bool {
	_, all := x.first()
	return all
}

// storeFirst stores some of the values in a checkpoint of their own. It does not count as one that
// stores what was set before it, so if the process dies, all of them are stored again.
func (x *Execution) storeFirst() error {
	_, err := x.commit(journal.Change{Events: []checkpoint.Event{{Kind: checkpoint.KindNoted, Why: checkpoint.SomeValues}}})
	return err
}

// putValues returns the operations that store the values of the next checkpoint.
func (x *Execution) putValues() (ops []storage.Op, err error) {
	vs, _ := x.first()
	for _, v := range vs {
		op, err := journal.PutPublished(x.ID, v.name, &journal.Published{
			Generation: x.Hold.Workflow.Generation,
			Codec:      v.Codec,
			Data:       v.Data,
			At:         journal.Micro(x.host.Now()),
		})
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// storedValues notes that this execution has written a checkpoint with these events.
func (x *Execution) storedValues(events []checkpoint.Event) {
	if vs, _ := x.first(); atRest(events) && len(vs) > 0 {
		x.values.pending = slices.Delete(x.values.pending, 0, len(vs))
		x.Owner.ValuesStored(x.ID)
	}
}

// replayedValues notes that a checkpoint with these events is in the history: it has stored all
// values that were set before it, unless more were to follow.
func (x *Execution) replayedValues(events []checkpoint.Event) {
	some := func(e checkpoint.Event) bool { return e.Kind == checkpoint.KindNoted && e.Why == checkpoint.SomeValues }
	if atRest(events) && !slices.ContainsFunc(events, some) {
		x.values.pending = nil
	}
}
