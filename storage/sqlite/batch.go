package sqlite

import (
	"database/sql/driver"

	"github.com/weft-go/weft/storage"
)

// batch applies b in the open transaction and reports whether its conditions held. If
// they did not, nothing was written.
//
// Conditions on keys that this connection has written or read lately are judged in memory,
// unless the group is small.
//
// Without a DeleteRange all operations are on different keys, so their order does not
// matter. Then a put can go first and check the conditions in the same statement.
func (w *writer) batch(b *storage.Batch) (bool, error) {
	w.conditions = w.conditions[:0]
	for _, c := range b.If {
		var holds, known bool
		if w.trusted {
			holds, known = w.known.Judge(c)
		}
		if !known {
			w.conditions = append(w.conditions, c)
		} else if !holds {
			return false, nil
		}
	}
	does, at := w.gateOf(b)
	rest := w.conditions
	for len(rest) > maxConditions || len(rest) > 0 && does == judge {
		n := min(len(rest), maxConditions)
		if ok, err := w.judge(rest[:n]); !ok || err != nil {
			return false, err
		}
		rest = rest[n:]
	}
	if does != judge {
		if ok, err := w.pass(does, rest, b.Ops[at]); !ok || err != nil {
			return false, err
		}
	}
	for i, o := range b.Ops {
		if does != judge && i == at {
			continue
		}
		if err := w.do(o); err != nil {
			return false, err
		}
	}
	for _, c := range w.conditions {
		w.known.Learn(c)
	}
	w.known.Note(b)
	return true, nil
}

// gateOf chooses the operation whose statement also checks w.conditions. It removes the
// condition that the operation implies. It returns judge if there is no such operation, or
// there are no conditions.
func (w *writer) gateOf(b *storage.Batch) (does gate, at int) {
	if len(w.conditions) == 0 || b.HasDeleteRange() {
		return judge, 0
	}
	for i, c := range w.conditions {
		if c.Kind != storage.IsAbsent {
			continue
		}
		for at, o := range b.Ops {
			if o.Kind == storage.PutOp && string(o.Key) == string(c.Key) {
				w.conditions = append(w.conditions[:i], w.conditions[i+1:]...)
				return insert, at
			}
		}
	}
	for at, o := range b.Ops {
		if o.Kind == storage.PutOp {
			return upsert, at
		}
	}
	return judge, 0
}

// judge reports whether conditions hold.
func (w *writer) judge(conditions []storage.Condition) (bool, error) {
	w.args = appendArgs(w.args[:0], conditions)
	holds := false
	err := w.query(w.sql.gate(judge, conditions), w.args, 1, func(row []driver.Value) error {
		holds = row[0] == int64(1)
		return nil
	})
	return holds, err
}

// pass applies the put o if conditions hold, and reports whether it did.
func (w *writer) pass(does gate, conditions []storage.Condition, o storage.Op) (bool, error) {
	w.args = append(w.args[:0], o.Key)
	w.args = appendArgs(w.args, conditions)
	w.args = append(w.args, blob(o.Value))
	changed, err := w.exec(w.sql.gate(does, conditions), w.args...)
	return changed == 1, err
}

func appendArgs(args []driver.Value, conditions []storage.Condition) []driver.Value {
	for _, c := range conditions {
		args = append(args, c.Key)
		if c.Kind == storage.IsEqual {
			args = append(args, blob(c.Value))
		}
	}
	return args
}

func (w *writer) do(o storage.Op) error {
	var err error
	switch o.Kind {
	case storage.PutOp:
		_, err = w.exec(w.sql.put, o.Key, blob(o.Value))
	case storage.DeleteOp:
		_, err = w.exec(w.sql.delete, o.Key)
	case storage.DeleteRangeOp:
		_, err = w.exec(w.sql.deleteRange(o.Range), bounds(o.Range)...)
	}
	return err
}

// bounds returns the arguments for statements.within.
func bounds(r storage.Range) []driver.Value {
	var args []driver.Value
	for _, b := range [][]byte{r.Start, r.End} {
		if b != nil {
			args = append(args, b)
		}
	}
	return args
}
