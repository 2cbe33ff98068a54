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

	insertIf  // see session.quick
	replaceIf // the same for batches that also replace or delete rows
	swap      // see session.swap

	prepared
)

// names are the names of the prepared statements.
var names = [prepared]string{
	begin: "weft_begin", commit: "weft_commit", rollback: "weft_rollback",
	shareOrSkip: "weft_shareOrSkip", shareOnlyOrSkip: "weft_shareOnlyOrSkip",
	updateOrSkip: "weft_updateOrSkip", updateOnlyOrSkip: "weft_updateOnlyOrSkip",
	shareOrWait: "weft_shareOrWait", updateOrWait: "weft_updateOrWait",
	there: "weft_there", insert: "weft_insert", change: "weft_change", remove: "weft_remove",
	insertIf: "weft_insertIf", replaceIf: "weft_replaceIf", swap: "weft_swap",
}

// No statement joins the table with its arguments: while the table is small, the planner
// would prefer a sequential scan to looking up each key, and the plan would be kept after
// the table has grown.
//
// A connection of the host's pool may be to a standby, which lacks the latest commits. So the
// statements that read there convert a text that is no boolean to one, and so fail on a standby.
func newStatements(o Options, ours bool) statements {
	t := o.quoted()
	primary := ""
	if !ours {
		primary = ` AND (SELECT (CASE WHEN pg_is_in_recovery() THEN 'recovering' ELSE 'true' END)::boolean)`
	}
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
				WHERE (SELECT count(*) FROM l WHERE equal) = cardinality($1::bytea[])
				AND NOT EXISTS (SELECT FROM ` + t + ` WHERE k = ANY($3::bytea[]))`,
			// It returns one row if it writes, else none. All of its parts run with one
			// snapshot and in any order, so each that writes depends on holds.
			replaceIf: `WITH compared AS MATERIALIZED (
				SELECT coalesce(v = ($2::bytea[])[array_position($1::bytea[], k)], true) AS equal FROM ` + named + ` FOR SHARE SKIP LOCKED),
				held AS MATERIALIZED (
				SELECT coalesce(v = ($4::bytea[])[array_position($3::bytea[], k)], true) AS equal FROM ` + t + ` WHERE k = ANY($3::bytea[]) FOR UPDATE SKIP LOCKED),
				holds AS MATERIALIZED (
				SELECT WHERE (SELECT count(*) FROM compared WHERE equal) = cardinality($1::bytea[])
				AND (SELECT count(*) FROM held WHERE equal) = cardinality($3::bytea[])
				AND NOT EXISTS (SELECT FROM ` + t + ` WHERE k = ANY($5::bytea[]))),
				inserted AS (
				INSERT INTO ` + t + ` (k, v) SELECT u.k, u.v FROM unnest($5::bytea[], $6::bytea[]) AS u (k, v) WHERE EXISTS (SELECT FROM holds)),
				replaced AS (
				UPDATE ` + t + ` SET v = ($8::bytea[])[array_position($7::bytea[], k)] WHERE k = ANY($7::bytea[]) AND EXISTS (SELECT FROM holds)),
				deleted AS (
				DELETE FROM ` + t + ` WHERE k = ANY($9::bytea[]) AND EXISTS (SELECT FROM holds))
				SELECT FROM holds`,
			swap: `UPDATE ` + t + ` SET v = $3 WHERE k = $1 AND v = $2`,
		},
		get:   `SELECT v FROM ` + t + ` WHERE k = $1` + primary,
		gets:  `SELECT k, v FROM ` + named,
		table: t,
	}
	page := `SELECT k, v FROM ` + t + ` WHERE k >= $1` + primary
	for end, within := range []string{page, page + ` AND k < $3`} {
		s.scan[0][end] = within + ` ORDER BY k LIMIT $2`
		s.scan[1][end] = within + ` ORDER BY k DESC LIMIT $2`
	}
	return s
}
