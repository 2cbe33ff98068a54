package postgres

import (
	"bytes"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

// quickMost is the maximum number of conditions and of operations for quick: the server
// compares each row with all of them.
const quickMost = 16

// isQuick reports whether quick can apply t: each of its operations only inserts, only replaces
// or only deletes, if the conditions hold. A key that must be absent and is deleted is put and
// then deleted, which one statement cannot do.
func (t *ticket) isQuick() bool {
	if n := len(t.batch.Ops); n == 0 || n > quickMost || len(t.batch.If) > quickMost {
		return false
	}
	return !slices.ContainsFunc(t.batch.Ops, func(o storage.Op) bool {
		return o.Kind == storage.DeleteRangeOp || o.Kind == storage.DeleteOp && slices.ContainsFunc(t.batch.If, func(c storage.Condition) bool {
			return c.Kind == storage.IsAbsent && bytes.Equal(c.Key, o.Key)
		})
	})
}

// quick tries to apply a single batch in one statement, and so in one round trip, assuming
// that its conditions hold. Without a condition, it assumes that a key to put does not exist
// and that a key to delete does. It reports whether all this was so. If not, nothing was
// written and nothing is known.
//
// The statement locks the rows that must exist, skipping those locked by others, and compares
// their newest versions, which may be newer than its snapshot. It writes only if all of them
// exist and are equal; nobody else can change them until it has committed. It does not wait
// for these locks, so their order does not matter. An insert may wait for another transaction
// that inserts or deletes the same key, so inserts are in key order. The insert is what proves
// that a key is absent: if it is not, the statement fails as a whole. The statement also looks
// for these keys first, only to save the server an error in its log.
func (c *session) quick(p *pgconn.Pipeline, t *ticket) (bool, error) {
	r := &c.rows
	r.build([]*ticket{t}, nil) // sorts the keys
	r.assume(&t.batch)
	compared := r.pick(func(x *row) bool { return x.share })
	held := r.pick(func(x *row) bool { return !x.share && x.before })
	inserted := r.pick(func(x *row) bool { return !x.share && !x.before })
	args := append(r.keys(compared), r.expected(compared))
	if len(held) > 0 {
		args = append(args, r.keys(held)[0], r.expected(held))
	}
	r.apply(t.batch.Ops, r.at[len(t.batch.If):])
	args = append(args, r.keys(inserted)[0], r.contents(inserted))
	one, affected := call{prepared: insertIf, args: args}, int64(len(inserted))
	if len(held) > 0 {
		replaced := r.pick(func(x *row) bool { return !x.share && x.before && x.now })
		deleted := r.pick(func(x *row) bool { return !x.share && x.before && !x.now })
		args = append(args, r.keys(replaced)[0], r.contents(replaced), r.keys(deleted)[0])
		one, affected = call{prepared: replaceIf, args: args}, 1
	}
	c.calls = append(c.calls[:0], one)
	failed, err := c.do(p, c.calls)
	switch e, ok := errors.AsType[*pgconn.PgError](err); {
	case err == nil && c.calls[0].affected == affected:
		t.err = nil
		c.note()
		return true, nil
	case err == nil, ok && e.SeverityUnlocalized == "ERROR" && failed == 0:
		return false, nil
	}
	return false, outcome(err, failed > 0) // the statement commits by itself, so an error after it may hide a commit
}

// assume records which rows exist if the conditions of b hold, and the values that these
// require.
func (r *rows) assume(b *storage.Batch) {
	for i, c := range b.If {
		x := &r.list[r.at[i]]
		x.before, x.content = c.Kind != storage.IsAbsent, c.Value
	}
	for i, o := range b.Ops {
		if o.Kind == storage.DeleteOp {
			r.list[r.at[len(b.If)+i]].before = true
		}
	}
}

// isSwap reports whether swap can apply t, as it can for the renewal of a lease: t replaces
// one value with another.
func (t *ticket) isSwap() bool {
	b := &t.batch
	return len(b.If) == 1 && b.If[0].Kind == storage.IsEqual &&
		len(b.Ops) == 1 && b.Ops[0].Kind == storage.PutOp && bytes.Equal(b.If[0].Key, b.Ops[0].Key)
}

// swap tries to apply an urgent batch in one statement, and so in one round trip. It
// reports whether it did. If not, nothing was written: either the value was different, or
// a transaction that swap waited for had deleted and inserted the row again.
//
// If the connection is dead, this is noticed only now, and the outcome is unknown. For a
// lease renewal its owner can find out, because nobody else writes the same value.
func (c *session) swap(p *pgconn.Pipeline, t *ticket) (bool, error) {
	is, put := &t.batch.If[0], &t.batch.Ops[0]
	c.calls = append(c.calls[:0], call{prepared: swap, args: [][]byte{is.Key, notNull(is.Value), notNull(put.Value)}})
	failed, err := c.do(p, c.calls)
	if err != nil {
		return false, outcome(err, failed > 0) // the statement commits by itself, so an error after it may hide a commit
	}
	if c.calls[0].affected == 0 {
		return false, nil
	}
	t.err = nil
	return true, nil
}

// notNull returns v as an argument. A nil slice would be NULL.
func notNull(v []byte) []byte {
	if v == nil {
		return []byte{}
	}
	return v
}

// expected returns the values that are required of rows; NULL means any.
func (r *rows) expected(sent []int32) []byte {
	start := len(r.wire)
	r.wire = beginArray(r.wire, len(sent))
	for _, i := range sent {
		if x := &r.list[i]; x.value {
			r.wire = appendBytes(r.wire, x.content)
		} else {
			r.wire = appendNull(r.wire)
		}
	}
	return r.wire[start:]
}

// note tells the notifier what was written.
func (c *session) note() {
	if c.store.notes != nil && !c.urgent {
		c.store.notes.add(&c.rows)
	}
}
