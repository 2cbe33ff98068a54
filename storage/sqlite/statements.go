package sqlite

import (
	"strings"

	"github.com/weft-go/weft/storage"
)

// statements are the SQL texts that a connection runs. The connection caches prepared
// statements by text.
type statements struct {
	table                   string // quoted
	begin, commit, rollback string
	get, put, delete        string
	gates                   map[shape]string
}

func newStatements(table string) statements {
	t := `"` + table + `"`
	return statements{
		table:    t,
		begin:    `BEGIN IMMEDIATE`,
		commit:   `COMMIT`,
		rollback: `ROLLBACK`,
		get:      `SELECT v FROM ` + t + ` WHERE k = ?`,
		put:      `INSERT INTO ` + t + ` (k, v) VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v`,
		delete:   `DELETE FROM ` + t + ` WHERE k = ?`,
		gates:    map[shape]string{},
	}
}

// A shape determines the text of a statement with conditions: the kinds of the
// conditions, and what it does if they hold.
type shape struct {
	does  gate
	count int
	kinds [maxConditions]storage.ConditionKind
}

// A gate is what a statement with conditions does.
type gate uint8

const (
	judge  gate = iota // returns 1 if they hold, else 0 or NULL
	insert             // puts a key if they hold and the key is absent
	upsert             // puts a key if they hold
)

// maxConditions is the maximum number of conditions in one statement.
const maxConditions = 16

// maxGates limits the cache of shapes.
const maxGates = 64

// gate returns the statement that checks conditions and does something if they hold.
// Its arguments are the key to put, those of the conditions, and the value to put.
//
// A put has no WHERE clause: SQLite would copy rows to a temporary table, because the
// statement reads the table that it writes. Instead, the value is NULL if the
// conditions do not hold, and OR IGNORE silently skips the NULL. It also skips an
// insert of a key that exists.
func (s *statements) gate(does gate, conditions []storage.Condition) string {
	sh := shape{does: does, count: len(conditions)}
	for i, c := range conditions {
		sh.kinds[i] = c.Kind
	}
	if sql, ok := s.gates[sh]; ok {
		return sql
	}
	var all []string
	for _, c := range conditions {
		all = append(all, s.condition(c.Kind))
	}
	holds := strings.Join(all, " AND ")
	if holds == "" {
		holds = "1"
	}
	sql := `SELECT ` + holds
	if does != judge {
		sql = `INSERT OR IGNORE INTO ` + s.table + ` (k, v) VALUES (?, CASE WHEN ` + holds + ` THEN ? END)`
	}
	if does == upsert {
		sql += ` ON CONFLICT (k) DO UPDATE SET v = excluded.v`
	}
	if len(s.gates) == maxGates {
		clear(s.gates)
	}
	s.gates[sh] = sql
	return sql
}

func (s *statements) condition(kind storage.ConditionKind) string {
	switch kind {
	case storage.IsEqual:
		return `(SELECT v FROM ` + s.table + ` WHERE k = ?) = ?`
	case storage.IsAbsent:
		return `NOT EXISTS (SELECT 1 FROM ` + s.table + ` WHERE k = ?)`
	default:
		return `EXISTS (SELECT 1 FROM ` + s.table + ` WHERE k = ?)`
	}
}

// scan returns the statement that reads a page. Its arguments are the bounds that are
// not nil, Start before End, and the limit.
func (s *statements) scan(r storage.Range) string {
	sql := `SELECT k, v FROM ` + s.table + s.within(r) + ` ORDER BY k`
	if r.Reverse {
		sql += ` DESC`
	}
	// Without the cast, SQLite would plan the statement again whenever the limit
	// is bound: 50 µs for a page instead of 15.
	return sql + ` LIMIT CAST(? AS INTEGER)`
}

// deleteRange returns a statement whose arguments are the bounds that are not nil.
func (s *statements) deleteRange(r storage.Range) string {
	return `DELETE FROM ` + s.table + s.within(r)
}

func (s *statements) within(r storage.Range) string {
	switch {
	case r.Start != nil && r.End != nil:
		return ` WHERE k >= ? AND k < ?`
	case r.Start != nil:
		return ` WHERE k >= ?`
	case r.End != nil:
		return ` WHERE k < ?`
	}
	return ``
}
