package postgres

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

// quickMost is the maximum number of conditions and of operations for quick: the server
// compares each row with all of them.
const quickMost = 16

// isQuick reports whether quick can apply t, as it can for most steps of a workflow: all
// operations are puts, of keys that are expected to be absent.
func (t *ticket) isQuick() bool {
	if n := len(t.batch.Ops); n == 0 || n > quickMost || len(t.batch.If) > quickMost {
		return false
	}
	for _, o := range t.batch.Ops {
		if o.Kind != storage.PutOp {
			return false
		}
		if i := slices.IndexFunc(t.batch.If, func(c storage.Condition) bool { return string(c.Key) == string(o.Key) }); i >= 0 &&
			t.batch.If[i].Kind != storage.IsAbsent {
			return false
		}
	}
	return true
}

// quick tries to apply a single batch in one statement, and so in one round trip, assuming
// that its conditions hold. It reports whether they did. If not, nothing was written and
// nothing is known.
//
// The statement locks the rows to compare, skipping those locked by others, and compares
// them. It inserts only if all of them exist and are equal. The insert is what proves that
// a key is absent. The statement also looks for these keys first, only to save the server
// an error in its log.
func (c *session) quick(p *pgconn.Pipeline, t *ticket) (bool, error) {
	r := &c.rows
	r.build([]*ticket{t}, nil) // sorts the keys, so inserts are in key order
	b := &t.batch
	var compared, put []int32
	for i := range r.list {
		if r.list[i].share {
			compared = append(compared, int32(i))
		} else {
			put = append(put, int32(i))
		}
	}
	at := r.at[len(b.If):]
	for i := range b.Ops {
		x := &r.list[at[i]]
		x.content, x.changed = b.Ops[i].Value, true
	}
	args := append(r.keys(compared), r.expected(t, compared))
	args = append(args, r.keys(put)[0], r.contents(put), binary.BigEndian.AppendUint64(nil, uint64(len(compared))))
	c.calls = append(c.calls[:0], call{prepared: insertIf, args: args})
	_, err := c.do(p, c.calls)
	switch e, ok := errors.AsType[*pgconn.PgError](err); {
	case err == nil && c.calls[0].affected == int64(len(put)):
		t.err, t.skipped = nil, false
		c.note()
		return true, nil
	case err == nil, ok && e.SeverityUnlocalized == "ERROR":
		return false, nil
	}
	return false, &unknownError{err}
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
	t.err, t.skipped = nil, false
	return true, nil
}

// notNull returns v as an argument. A nil slice would be NULL.
func notNull(v []byte) []byte {
	if v == nil {
		return []byte{}
	}
	return v
}

// expected returns the values that t requires of rows; NULL means any.
func (r *rows) expected(t *ticket, sent []int32) []byte {
	for i, c := range t.batch.If {
		if x := &r.list[r.at[i]]; x.share {
			x.content = c.Value
		}
	}
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
