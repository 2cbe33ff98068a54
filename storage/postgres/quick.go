package postgres

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

// quickMost is how many conditions and operations quick takes on: the server goes
// through them one by one for each row.
const quickMost = 16

// isQuick says whether t is a batch that quick can do: most steps of a workflow
// are. It only puts, and what it puts should not be there yet.
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

// quick tries to apply a batch that is alone, on the assumption that its
// conditions hold, in one statement and so in one round trip. It says whether
// that was so: if not, nothing was written and nothing is known.
//
// The statement locks what is compared, skipping what others have locked, and
// compares what is locked; it inserts only if all of that was there and equal.
// An insert is what proves a key absent. That the statement looks for the keys
// beforehand only spares the server's log an error.
func (c *session) quick(p *pgconn.Pipeline, t *ticket) (bool, error) {
	r := &c.rows
	r.build([]*ticket{t}, nil) // sorts: inserts go in the order of keys
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

// isSwap says whether t is a batch that swap can do, as the renewal of a lease is:
// it puts one value in the place of another.
func (t *ticket) isSwap() bool {
	b := &t.batch
	return len(b.If) == 1 && b.If[0].Kind == storage.IsEqual &&
		len(b.Ops) == 1 && b.Ops[0].Kind == storage.PutOp && bytes.Equal(b.If[0].Key, b.Ops[0].Key)
}

// swap tries to apply an urgent batch in one statement and so in one round trip. It
// says whether that was so: if not, nothing was written, and the value was another, or
// its row was removed and put anew by those who were waited for.
//
// A connection that has died shows only now, and leaves the outcome unknown. Who
// renews a lease can tell: what he wrote is nobody else's.
func (c *session) swap(p *pgconn.Pipeline, t *ticket) (bool, error) {
	is, put := &t.batch.If[0], &t.batch.Ops[0]
	c.calls = append(c.calls[:0], call{prepared: swap, args: [][]byte{is.Key, notNull(is.Value), notNull(put.Value)}})
	failed, err := c.do(p, c.calls)
	if err != nil {
		return false, outcome(err, failed > 0) // behind the statement it commits
	}
	if c.calls[0].affected == 0 {
		return false, nil
	}
	t.err, t.skipped = nil, false
	return true, nil
}

// notNull is v as an argument, of which nil would be NULL.
func notNull(v []byte) []byte {
	if v == nil {
		return []byte{}
	}
	return v
}

// expected are the values that rows have to have for t: NULL for any.
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
