package postgres

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weft-go/weft/storage"
)

// maxRounds limits how often the rows of a range are locked again because others insert
// new ones.
const maxRounds = 10

// transactRange applies a batch with a DeleteRange, which is the only batch of g.
//
// It locks the rows of its ranges, and then checks with a new snapshot whether there are
// more. While it waited for locks, another batch may have written both to rows of the
// range and to new rows; the next round locks the new ones too. Otherwise only half of
// that batch would be deleted.
//
// No lock prevents others from inserting new keys into the range. So after all is written,
// while all locks are held, it checks once more: a key that is not there yet is ordered
// after this batch. Readers may see it earlier if it is committed before this batch. All
// this concerns batches without a range; batches with one run one at a time, under an
// advisory lock.
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

// within returns the SQL condition that selects the rows that b names or that are in its
// ranges.
func within(b *storage.Batch, r *rows) (string, [][]byte) {
	sql := []string{`k = ANY($1::bytea[])`}
	all := make([]int32, len(r.list))
	for i := range all {
		all[i] = int32(i)
	}
	args := [][]byte{bytes.Clone(r.keys(all)[0])} // outlives the next build
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
