package run

import (
	"fmt"
	"slices"

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
// A value is a rider. So a replay knows which values were stored: those that it sets before it reads a
// checkpoint that counts. It must not store these again, because later ones may have replaced them.
// The error depends only on what the function itself has done.
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
	put, err := journal.PutPublished(x.ID, name, &journal.Published{
		Generation: x.Hold.Workflow.Generation,
		Codec:      p.Codec,
		Data:       p.Data,
		At:         journal.Micro(x.now),
	})
	if err != nil {
		return fmt.Errorf("engine: value %q: %w", name, err)
	}
	if err := x.riders.values.set(value{name, put}); err != nil {
		return err
	}
	if len(x.Hold.Workflow.Resets) > 0 {
		x.riders.values.latest = replaced(x.riders.values.latest, value{name, put})
	}
	x.riders.asked()
	return nil
}

// values are those that the function of a run has set.
type values struct {
	names   map[string]bool
	pending []value // that are not stored, in the order in which their names came
	latest  []value // of all names, if the run was reset
}

// A value is one that the function has set.
type value struct {
	name string
	put  storage.Op // stores it
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
	vs.pending = replaced(vs.pending, v)
	return nil
}

// replaced returns vs with v, in place of another value of its name if there is one.
func replaced(vs []value, v value) []value {
	if i := slices.IndexFunc(vs, func(p value) bool { return p.name == v.name }); i >= 0 {
		vs[i] = v
		return vs
	}
	return append(vs, v)
}

func (vs *values) waits() bool { return len(vs.pending) > 0 }

func (vs *values) stored() { vs.pending = nil }

// ride adds the values to c. If c has nothing else, its event says so.
func (vs *values) ride(_ *Execution, c *journal.Change) {
	if len(c.Events) == 0 {
		c.Events = []checkpoint.Event{{Kind: checkpoint.KindNoted, Why: checkpoint.AllValues}}
	}
	c.Ops = append(slices.Clip(c.Ops), puts(vs.pending)...)
}

func puts(vs []value) (ops []storage.Op) {
	for _, v := range vs {
		ops = append(ops, v.put)
	}
	return ops
}

// within returns how many of the pending values are at most so many, and have at most so many
// bytes together.
func (vs *values) within(most, bytes int) (n int) {
	for _, v := range vs.pending {
		if bytes -= len(v.put.Key) + len(v.put.Value); n == most || bytes < 0 {
			break
		}
		n++
	}
	return n
}

// Limits of the values in one checkpoint, beside those of the store.
const (
	mostBeside = 16        // in one with something else
	mostAlone  = Spare / 2 // in one with nothing else but labels
)

// fit reports whether the next checkpoint has room for all values.
func (x *Execution) fit() bool {
	vs := &x.riders.values
	return vs.within(max(min(mostBeside, x.host.MaxOps-Spare), 0), x.host.MaxBytes/8) == len(vs.pending)
}

// storeFirst stores the first values in a checkpoint of their own, because they do not fit into the
// next one that counts. If the process dies before that one, all of them are stored again.
func (x *Execution) storeFirst() error {
	vs := &x.riders.values
	n := max(vs.within(mostAlone, x.host.MaxBytes), 1)
	done, err := x.commit(journal.Change{
		Events: []checkpoint.Event{{Kind: checkpoint.KindNoted, Why: checkpoint.SomeValues}},
		Ops:    puts(vs.pending[:n]),
	})
	if done {
		vs.pending = slices.Delete(vs.pending, 0, n)
		x.Owner.Stored(x.ID)
	}
	return err
}
