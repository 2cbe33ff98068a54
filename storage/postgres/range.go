package postgres

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

// maxRounds bounds how often the rows of a range are locked anew, as others keep
// coming.
const maxRounds = 10

// transactRange applies a batch with a DeleteRange, which is alone.
//
// It locks the rows of its ranges, and then looks with a fresh snapshot whether
// there are more. If a batch of others wrote some rows of the range while the
// first were waited for, all that it wrote is locked in the next round: else one
// half of it would be deleted and the other not.
//
// No lock keeps others from putting what was not in the range. When all is
// written, and all locks are held, it looks once more: what is not there then
// comes after the batch in the order of what is written; only readers may see it
// earlier, if it is committed before we are. That holds against batches that have
// no range; those that have one go one by one, by an advisory lock.
func (c *session) transactRange(p *pgconn.Pipeline, g []*ticket) error {
	batch := &g[0].batch
	r := &c.rows
	r.build(g, nil)
	condition, args := within(batch, r)
	table := c.store.sql.table
	values := map[string][]byte{}
	var fresh [][]byte
	lock := call{
		sql:  `SELECT k, CASE WHEN k = ANY($1::bytea[]) THEN v END FROM ` + table + condition + ` ORDER BY k FOR UPDATE`,
		args: args,
		row:  func(row [][]byte) { values[string(row[0])] = bytes.Clone(row[1]) },
	}
	look := call{
		sql:  `SELECT k FROM ` + table + condition,
		args: args,
		row:  func(row [][]byte) { fresh = append(fresh, bytes.Clone(row[0])) },
	}
	turn := call{sql: `SELECT pg_advisory_xact_lock($1::int8)`, args: [][]byte{binary.BigEndian.AppendUint64(nil, c.store.options.lock("range "))}}
	calls := []call{{prepared: begin}, turn, lock, look}
	for round := 0; ; round++ {
		if _, err := c.do(p, calls); err != nil {
			return before(err)
		}
		all := true
		for _, k := range fresh {
			if _, locked := values[string(k)]; !locked {
				all = false
			}
		}
		if all {
			break
		}
		if round == maxRounds {
			return errMoved
		}
		calls, fresh = []call{lock, look}, nil
	}
	r.build(g, fresh)
	for i := range r.list {
		x := &r.list[i]
		if content, ok := values[string(x.key)]; ok {
			x.lock(r, content)
		}
		x.judged, x.now = true, x.before
	}
	r.judge(g)
	calls = r.writes(nil)
	if len(calls) == 0 {
		return nil
	}
	fresh = nil
	if _, err := c.do(p, append(calls, look)); err != nil {
		return before(err)
	}
	for _, k := range fresh {
		if x := r.find(k); x == nil || !x.now {
			return errMoved
		}
	}
	return c.commit(p, []call{{prepared: commit}})
}

// within is the condition under which a row is named by b or lies in one of its
// ranges.
func within(b *storage.Batch, r *rows) (string, [][]byte) {
	sql := []string{`k = ANY($1::bytea[])`}
	all := make([]int32, len(r.list))
	for i := range all {
		all[i] = int32(i)
	}
	args := [][]byte{bytes.Clone(r.keys(all)[0])} // used beyond the next build
	for _, o := range b.Ops {
		if o.Kind != storage.DeleteRangeOp {
			continue
		}
		start := o.Range.Start
		if start == nil {
			start = []byte{}
		}
		args = append(args, start)
		condition := fmt.Sprintf(`k >= $%d::bytea`, len(args))
		if o.Range.End != nil {
			args = append(args, o.Range.End)
			condition += fmt.Sprintf(` AND k < $%d::bytea`, len(args))
		}
		sql = append(sql, condition)
	}
	return ` WHERE ` + strings.Join(sql, ` OR `), args
}
