package postgres

// statements are the texts of what a session of ours runs. It keeps them
// prepared, under their place.
type statements struct {
	prepared [prepared]string

	get, gets string
	// A page: ascending and descending, without and with an end.
	scan [2][2]string
	// What a DeleteRange names: see bounds.
	table string
}

// What a session has prepared.
const (
	begin = iota
	commit
	rollback

	// These lock rows that are there, and say which. The first four leave out
	// rows that others have locked, in which case it does not matter in which
	// order they come; the last two wait, so they keep the order of the keys. All
	// but two return what is in the rows too.
	shareOrSkip
	shareOnlyOrSkip
	updateOrSkip
	updateOnlyOrSkip
	shareOrWait
	updateOrWait

	there // says which rows are there, locked or not

	insert
	change
	remove

	insertIf // see session.quick
	swap     // see session.swap

	prepared
)

// names are those of the statements in a session.
var names = [prepared]string{
	begin: "weft_begin", commit: "weft_commit", rollback: "weft_rollback",
	shareOrSkip: "weft_shareOrSkip", shareOnlyOrSkip: "weft_shareOnlyOrSkip",
	updateOrSkip: "weft_updateOrSkip", updateOnlyOrSkip: "weft_updateOnlyOrSkip",
	shareOrWait: "weft_shareOrWait", updateOrWait: "weft_updateOrWait",
	there: "weft_there", insert: "weft_insert", change: "weft_change", remove: "weft_remove",
	insertIf: "weft_insertIf", swap: "weft_swap",
}

// No statement joins the table with what it is given: while the table is small,
// the planner would rather read all of it than look up each key, and the plan is
// kept when the table has grown.
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
			// Only of rows that are there, and locked.
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
