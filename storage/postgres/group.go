package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// commitGroups applies groups until the store is closed.
func (s *Store) commitGroups() {
	c := s.newSession(groupLockTimeout)
	defer c.close()
	var g []*ticket
	for {
		// Let callers that were just answered, or are about to arrive, run first
		// and join the group. If there are none this costs nothing.
		runtime.Gosched()
		if g = s.next(g[:0]); len(g) == 0 {
			return
		}
		s.settle(c, g)
	}
}

// settle applies g, retrying and halving it as necessary, until every batch in it is
// answered or moved to a lane.
func (s *Store) settle(c *session, g []*ticket) {
	for attempt := 1; ; attempt++ {
		err := c.try(g)
		if err == nil {
			s.finish(g, nil)
			return
		}
		undone, _ := errors.AsType[*undoneError](err)
		_, lost := errors.AsType[*lostError](err)
		r := remedyOf(err)
		most := 3
		if len(g) == 1 && !lost {
			most = 20
		}
		switch {
		case r == retry && attempt < most:
			if attempt > 1 {
				time.Sleep(rand.N(time.Duration(attempt) * time.Millisecond))
			}
			continue
		case r != fail && !lost && len(g) > 1:
			half := len(g) / 2
			s.settle(c, g[:half])
			s.settle(c, g[half:])
			return
		case undone != nil && undone.Code == lockNotAvailable && !c.waits:
			g[0].skipped = true
		case undone != nil && undone.Code == lockNotAvailable:
			err = errors.Join(errBusy, err)
		}
		for _, t := range g {
			t.err = err
		}
		s.finish(g, err)
		return
	}
}

// try applies g in one transaction. If it returns nil, every ticket is answered or
// skipped.
func (c *session) try(g []*ticket) error {
	for _, t := range g {
		t.skipped = false // by an earlier try, in a larger group
	}
	if c.conn == nil {
		if err := c.connect(context.Background()); err != nil {
			return &lostError{fmt.Errorf("connect: %w", err)}
		}
	}
	conn := c.conn.PgConn()
	p := conn.StartPipeline(context.Background())
	var err error
	done := false
	fresh := time.Since(c.used) < time.Second // else the connection may be dead, which a first round trip without a commit finds out
	switch {
	case len(g) > 1:
	case c.urgent && g[0].isSwap():
		done, err = c.swap(p, g[0])
	case !c.waits && fresh && g[0].isQuick():
		done, err = c.quick(p, g[0])
	}
	switch {
	case done || err != nil:
	case g[0].ranges:
		err = c.transactRange(p, g)
	default:
		err = c.transact(p, g)
	}
	p.Close()
	if !conn.IsClosed() && conn.TxStatus() != 'I' {
		p = conn.StartPipeline(context.Background()) // after an error, pgconn cannot use p for more prepared statements
		c.do(p, []call{{prepared: rollback}})
		p.Close()
	}
	c.used = time.Now()
	if conn.IsClosed() || conn.TxStatus() != 'I' {
		c.discard()
	}
	return err
}

// transact applies g in two round trips. It takes a third if an expected row was not
// locked, to find out whether it was deleted or is locked by others.
func (c *session) transact(p *pgconn.Pipeline, g []*ticket) error {
	r := &c.rows
	r.build(g, nil)
	calls := append(c.calls[:0], call{prepared: begin})
	if c.waits {
		calls = r.lockAll(calls)
	} else {
		calls = r.lockFree(calls)
	}
	c.calls = calls
	if _, err := c.do(p, calls); err != nil {
		return before(err)
	}
	if calls := r.missing(); len(calls) > 0 {
		if _, err := c.do(p, calls); err != nil {
			return before(err)
		}
	}
	for i := range r.list {
		if !r.list[i].conclude() && c.waits {
			return errMoved
		}
	}
	r.judge(g)
	return c.write(p)
}

// before classifies an error that occurred before COMMIT was sent.
func before(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.SeverityUnlocalized == "ERROR" {
		return &undoneError{e}
	}
	return &lostError{err}
}

// lockFree locks the rows that others have not locked, and queries which of the rows that
// may be missing exist.
func (r *rows) lockFree(calls []call) []call {
	calls = r.lock(calls, shareOrSkip, func(x *row) bool { return x.share && !x.update && x.value })
	calls = r.lock(calls, shareOnlyOrSkip, func(x *row) bool { return x.share && !x.update && !x.value })
	calls = r.lock(calls, updateOrSkip, func(x *row) bool { return x.update && x.value })
	calls = r.lock(calls, updateOnlyOrSkip, func(x *row) bool { return x.update && !x.value })
	return r.look(calls, func(x *row) bool { return x.probe })
}

// lockAll locks all rows in key order and waits for each lock. Consecutive rows that need
// the same kind of lock share a statement.
func (r *rows) lockAll(calls []call) []call {
	sent := r.pick(func(x *row) bool { return x.share || x.update })
	for n := 0; len(sent) > 0; sent = sent[n:] {
		statement, update := shareOrWait, r.list[sent[0]].update
		if update {
			statement = updateOrWait
		}
		for n = 1; n < len(sent) && r.list[sent[n]].update == update; n++ {
		}
		calls = append(calls, call{prepared: statement, args: r.keys(sent[:n]), row: r.lockedRow})
	}
	return r.look(calls, func(x *row) bool { x.probe = true; return true })
}

func (r *rows) lock(calls []call, statement int, pick func(*row) bool) []call {
	sent := r.pick(pick)
	if len(sent) == 0 {
		return calls
	}
	return append(calls, call{prepared: statement, args: r.keys(sent), row: r.lockedRow})
}

// lockedRow processes a row of the server's answer: a key, and its value if that is
// needed.
func (r *rows) lockedRow(values [][]byte) {
	x := r.find(values[0])
	if x == nil {
		return
	}
	var content []byte
	if len(values) > 1 {
		content = values[1]
	}
	x.lock(r, content)
}

func (r *rows) look(calls []call, pick func(*row) bool) []call {
	sent := r.pick(pick)
	if len(sent) == 0 {
		return calls
	}
	return append(calls, call{prepared: there, args: r.keys(sent), row: func(values [][]byte) {
		if x := r.find(values[0]); x != nil {
			x.seen = true
		}
	}})
}

// missing queries the rows that should have been locked for share, and so were expected
// to exist, but were not locked.
func (r *rows) missing() []call {
	return r.look(nil, func(x *row) bool {
		lost := !x.locked && !x.probe
		x.probe = x.probe || lost
		return lost
	})
}

// write writes the result of the batches and commits. If they changed nothing, it does not
// commit; the rollback releases the locks.
func (c *session) write(p *pgconn.Pipeline) error {
	calls := c.rows.writes(c.calls[:0])
	if len(calls) == 0 {
		return nil
	}
	c.calls = append(calls, call{prepared: commit})
	return c.commit(p, c.calls)
}

// writes returns the statements that write. If a key to delete does not exist, nothing is
// locked and others could put it concurrently, so that the transactions might have no
// serial order. Therefore such a key is put and then deleted, which locks it.
func (r *rows) writes(calls []call) []call {
	add := func(statement int, pick func(*row) bool, contents bool) {
		sent := r.pick(pick)
		if len(sent) == 0 {
			return
		}
		args := r.keys(sent)
		if contents {
			args = append(args, r.contents(sent))
		}
		calls = append(calls, call{prepared: statement, args: args})
	}
	add(change, func(x *row) bool { return x.changed && x.before && x.now }, true)
	add(remove, func(x *row) bool { return x.changed && x.before && !x.now }, false)
	add(insert, func(x *row) bool { return x.changed && !x.before }, true)
	add(remove, func(x *row) bool { return x.changed && !x.before && !x.now }, false)
	return calls
}

// commit runs calls, the last of which is COMMIT.
func (c *session) commit(p *pgconn.Pipeline, calls []call) error {
	failed, err := c.do(p, calls)
	if err == nil {
		c.note()
		return nil
	}
	return outcome(err, failed == len(calls)-1)
}

// outcome classifies an error of COMMIT, or of a statement sent along with it.
func outcome(err error, commits bool) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if ok && e.SeverityUnlocalized == "ERROR" && (!commits || rolledBack(e.Code)) {
		return &undoneError{e}
	}
	return &unknownError{err}
}
