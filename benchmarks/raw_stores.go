package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"log"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/jackc/pgx/v5"
	"go.etcd.io/bbolt"
	"modernc.org/sqlite"

	"github.com/weft-go/weft/storage"
)

// A rawSQLite talks to the driver without database/sql, whose locks and
// conversions cost as much as the statements.
type rawSQLite struct {
	conn                       driver.Conn
	begin, commit, put, delete driver.StmtExecContext
}

func openRawSQLite(ctx context.Context, s Site) (raw, error) {
	file := filepath.Join(s.Dir, "raw.db")
	conn, err := (&sqlite.Driver{}).Open("file:" + file + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	r := &rawSQLite{conn: conn}
	prepare := func(sql string) (s driver.StmtExecContext) {
		if err != nil {
			return nil
		}
		var prepared driver.Stmt
		if prepared, err = conn.Prepare(sql); err == nil {
			s = prepared.(driver.StmtExecContext)
		}
		return s
	}
	table := `CREATE TABLE IF NOT EXISTS raw (k BLOB PRIMARY KEY NOT NULL, v BLOB NOT NULL)`
	if !s.Recorded {
		table += ` WITHOUT ROWID` // rows of 100 bytes are written faster
	}
	if create := prepare(table); err == nil {
		_, err = create.ExecContext(ctx, nil)
	}
	r.begin, r.commit = prepare(`BEGIN IMMEDIATE`), prepare(`COMMIT`)
	r.put = prepare(`INSERT INTO raw VALUES (?, ?) ON CONFLICT (k) DO UPDATE SET v = excluded.v`)
	r.delete = prepare(`DELETE FROM raw WHERE k = ?`)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return r, nil
}

func (r *rawSQLite) Close() error { return r.conn.Close() }

func (r *rawSQLite) Write(ctx context.Context, ops []storage.Op) error {
	ctx = context.WithoutCancel(ctx) // the driver starts a goroutine for one that ends
	if len(ops) == 1 {
		return r.do(ctx, ops[0])
	}
	if _, err := r.begin.ExecContext(ctx, nil); err != nil {
		return err
	}
	for _, o := range ops {
		if err := r.do(ctx, o); err != nil {
			return err
		}
	}
	_, err := r.commit.ExecContext(ctx, nil)
	return err
}

func (r *rawSQLite) do(ctx context.Context, o storage.Op) error {
	args := []driver.NamedValue{{Ordinal: 1, Value: o.Key}, {Ordinal: 2, Value: o.Value}}
	do := r.put
	if o.Kind == storage.DeleteOp {
		do, args = r.delete, args[:1]
	} else if o.Value == nil {
		args[1].Value = []byte{} // nil is NULL
	}
	_, err := do.ExecContext(ctx, args)
	return err
}

// A rawBolt is bbolt as it comes.
type rawBolt struct{ db *bbolt.DB }

func openRawBolt(_ context.Context, s Site) (raw, error) {
	db, err := bbolt.Open(filepath.Join(s.Dir, "raw.bolt"), 0o600, nil)
	if err != nil {
		return nil, err
	}
	return rawBolt{db}, nil
}

func (r rawBolt) Close() error { return r.db.Close() }

func (r rawBolt) Write(_ context.Context, ops []storage.Op) error {
	return r.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("raw"))
		for _, o := range ops {
			switch {
			case err != nil:
				return err
			case o.Kind == storage.DeleteOp:
				err = b.Delete(o.Key)
			default:
				err = b.Put(o.Key, o.Value)
			}
		}
		return err
	})
}

// A rawPebble is pebble as it comes.
type rawPebble struct{ db *pebble.DB }

func openRawPebble(_ context.Context, s Site) (raw, error) {
	db, err := pebble.Open(filepath.Join(s.Dir, "raw.pebble"), &pebble.Options{Logger: quiet{}})
	if err != nil {
		return nil, err
	}
	return rawPebble{db}, nil
}

// quiet leaves out what pebble says of its files. What is fatal ends the measurement.
type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(format string, args ...any) { log.Printf(format, args...) }
func (quiet) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }

func (r rawPebble) Close() error { return r.db.Close() }

func (r rawPebble) Write(_ context.Context, ops []storage.Op) error {
	b := r.db.NewBatch()
	for _, o := range ops {
		var err error
		if o.Kind == storage.DeleteOp {
			err = b.Delete(o.Key, nil)
		} else {
			err = b.Set(o.Key, o.Value, nil)
		}
		if err != nil {
			return errors.Join(err, b.Close())
		}
	}
	return errors.Join(r.db.Apply(b, pebble.Sync), b.Close())
}

// A rawPostgres writes a transaction in one round trip.
type rawPostgres struct{ conn *pgx.Conn }

func openRawPostgres(ctx context.Context, s Site) (raw, error) {
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, `SELECT pg_advisory_lock(1)`) // two creations at once collide
	if err == nil {
		_, err = conn.Exec(ctx, `CREATE TABLE IF NOT EXISTS raw (k bytea PRIMARY KEY, v bytea NOT NULL)`)
	}
	if err == nil {
		_, err = conn.Exec(ctx, `SELECT pg_advisory_unlock(1)`)
	}
	if err != nil {
		conn.Close(ctx)
		return nil, err
	}
	return rawPostgres{conn}, nil
}

func (r rawPostgres) Close() error { return r.conn.Close(context.Background()) }

const (
	putOne  = `INSERT INTO raw VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = excluded.v`
	putMany = `INSERT INTO raw SELECT * FROM unnest($1::bytea[], $2::bytea[]) ON CONFLICT (k) DO UPDATE SET v = excluded.v`
	remove  = `DELETE FROM raw WHERE k = any($1::bytea[])`
)

func (r rawPostgres) Write(ctx context.Context, ops []storage.Op) error {
	if len(ops) == 1 {
		_, err := r.conn.Exec(ctx, putOne, ops[0].Key, ops[0].Value)
		return err
	}
	var keys, values, gone [][]byte
	for _, o := range ops {
		switch {
		case o.Kind == storage.DeleteOp:
			gone = append(gone, o.Key)
		case o.Value == nil:
			keys, values = append(keys, o.Key), append(values, []byte{}) // nil is NULL
		default:
			keys, values = append(keys, o.Key), append(values, o.Value)
		}
	}
	if len(gone) == 0 {
		_, err := r.conn.Exec(ctx, putMany, keys, values)
		return err
	}
	var b pgx.Batch // one implicit transaction
	b.Queue(putMany, keys, values)
	b.Queue(remove, gone)
	return r.conn.SendBatch(ctx, &b).Close()
}
