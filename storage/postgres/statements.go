package postgres

// statements are the SQL texts that the store runs. A session prepares those in prepared,
// by index.
type statements struct {
	prepared [prepared]string

	get, gets string
	// Reading a page: [ascending, descending][without, with an end].
	scan [2][2]string
	// The quoted name of the table, for a DeleteRange: see within.
	table string
}

// The prepared statements of a session.
const (
	begin = iota
	commit
	rollback

	// These lock existing rows and return their keys. The first four skip rows
	// locked by others, so their order does not matter. The last two wait, so
	// they lock in key order. All but the two with Only in their names also return
	// the values.
	shareOrSkip
	shareOnlyOrSkip
	updateOrSkip
	updateOnlyOrSkip
	shareOrWait
	updateOrWait

	there // returns which rows exist, locked or not

	insert
	change
	remove

	insertIf // see session.quick
	swap     // see session.swap

	prepared
)

// names are the names of the prepared statements.
var names = [prepared]string{
	begin: "weft_begin", commit: "weft_commit", rollback: "weft_rollback",
	shareOrSkip: "weft_shareOrSkip", shareOnlyOrSkip: "weft_shareOnlyOrSkip",
	updateOrSkip: "weft_updateOrSkip", updateOnlyOrSkip: "weft_updateOnlyOrSkip",
	shareOrWait: "weft_shareOrWait", updateOrWait: "weft_updateOrWait",
	there: "weft_there", insert: "weft_insert", change: "weft_change", remove: "weft_remove",
	insertIf: "weft_insertIf", swap: "weft_swap",
}

// No statement joins the table with its arguments: while the table is small, the planner
// would prefer a sequential scan to looking up each key, and the plan would be kept after
// the table has grown.
func newStatements(o Options) statements {
	t := o.quoted()
	named := t + ` WHERE k = ANY($1::bytea[])`
	s := statements{
		prepared: [prepared]string{
			begin:            `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`,
			commit:           `COMMIT`,
			rollback:         `ROLLBACK`,
			shareOrSkip:      `SELECT k, v FROM ` + named + ` FOR SHARE SKIP LOCKED`,
			shareOnlyOrSkip:  `SELECT k FROM ` + named + ` FOR SHARE SKIP LOCKED`,
			updateOrSkip:     `SELECT k, v FROM ` + named + ` FOR UPDATE SKIP LOCKED`,
			updateOnlyOrSkip: `SELECT k FROM ` + named + ` FOR UPDATE SKIP LOCKED`,
			shareOrWait:      `SELECT k, v FROM ` + named + ` ORDER BY k FOR SHARE`,
			updateOrWait:     `SELECT k, v FROM ` + named + ` ORDER BY k FOR UPDATE`,
			there:            `SELECT k FROM ` + named,
			insert:           `INSERT INTO ` + t + ` (k, v) SELECT u.k, u.v FROM unnest($1::bytea[], $2::bytea[]) AS u (k, v)`,
			// Only used for rows that exist and are locked.
			change: `INSERT INTO ` + t + ` (k, v) SELECT u.k, u.v FROM unnest($1::bytea[], $2::bytea[]) AS u (k, v)
				ON CONFLICT (k) DO UPDATE SET v = excluded.v`,
			remove: `DELETE FROM ` + named,
			insertIf: `WITH l AS MATERIALIZED (
				SELECT coalesce(v = ($2::bytea[])[array_position($1::bytea[], k)], true) AS equal FROM ` + named + ` FOR SHARE SKIP LOCKED)
				INSERT INTO ` + t + ` (k, v) SELECT u.k, u.v FROM unnest($3::bytea[], $4::bytea[]) AS u (k, v)
				WHERE (SELECT count(*) FROM l WHERE equal) = $5::int8
				AND NOT EXISTS (SELECT FROM ` + t + ` WHERE k = ANY($3::bytea[]))`,
			swap: `UPDATE ` + t + ` SET v = $3 WHERE k = $1 AND v = $2`,
		},
		get:   `SELECT v FROM ` + t + ` WHERE k = $1`,
		gets:  `SELECT k, v FROM ` + named,
		table: t,
	}
	page := `SELECT k, v FROM ` + t + ` WHERE k >= $1`
	for end, within := range []string{page, page + ` AND k < $3`} {
		s.scan[0][end] = within + ` ORDER BY k LIMIT $2`
		s.scan[1][end] = within + ` ORDER BY k DESC LIMIT $2`
	}
	return s
}
