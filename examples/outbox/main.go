// Outbox is a shop whose tables and workflows are in one SQLite database.
//
//	go run ./examples/outbox
//
// An order is a row, and the start of its workflow. Both are written in the same
// transaction, so there is no order without a workflow and no workflow without an
// order. One of four customers cancels before the commit: nothing of her order remains.
//
// The workflow books the order in a transaction of the same database. The stock and the
// book change in the transaction that commits the step's checkpoint, so this happens
// exactly once, however often the process dies. At the end the program checks the
// totals.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/sqlite"
)

// An Order is a customer's order.
type Order struct {
	ID, Customer string
	Looms        int
}

var errSoldOut = errors.New("sold out")

var handle = &engine.Workflow[Order, string]{
	Name:   "handle",
	Errors: []error{errSoldOut},
	Func: func(run *engine.Run, o Order) (string, error) {
		left, err := sqlite.Transact(run, "book", func(ctx context.Context, tx *sql.Tx) (int, error) {
			return book(ctx, tx, o)
		})
		return fmt.Sprintf("%s gets %d, %d left", o.Customer, o.Looms, left), err
	},
}

// book takes the looms from the stock and writes the order into the book. It is not
// idempotent, and need not be.
func book(ctx context.Context, tx *sql.Tx, o Order) (left int, err error) {
	err = tx.QueryRowContext(ctx, "UPDATE stock SET looms = looms - ? RETURNING looms", o.Looms).Scan(&left)
	if err != nil {
		return 0, err
	}
	if left < 0 {
		return 0, errSoldOut // rolls back
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO book (customer, looms) VALUES (?, ?)", o.Customer, o.Looms)
	return left, err
}

func main() {
	dir, err := os.MkdirTemp("", "weft-outbox-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := run(context.Background(), filepath.Join(dir, "shop.db")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, path string) (err error) {
	store, err := sqlite.Open(path, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `
		CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT, looms INTEGER);
		CREATE TABLE book (customer TEXT, looms INTEGER);
		CREATE TABLE stock (looms INTEGER);
		INSERT INTO stock VALUES (10)`); err != nil {
		return err
	}
	eng, err := engine.New(engine.Config{
		Storage:   store,
		Workflows: []engine.Definition{handle},
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() {
		defer stop() // what waits for a result ends, too
		ran <- eng.Run(ctx)
	}()
	defer func() { stop(); err = errors.Join(err, <-ran) }()

	shop := shop{store, db, eng}
	for i, o := range []Order{
		{"order-1", "Ann", 4},
		{"order-2", "Bea", 3},
		{"order-3", "Cis", 5},
		{"order-4", "Dot", 5},
	} {
		if err := shop.place(ctx, o, i == 1); err != nil {
			return err
		}
		shop.tell(ctx, o)
	}
	return shop.count(ctx)
}

type shop struct {
	store *sqlite.Store
	db    *sql.DB
	eng   *engine.Engine
}

// place writes an order and starts its workflow, both or neither.
func (s shop) place(ctx context.Context, o Order, regret bool) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, ?, ?)", o.ID, o.Customer, o.Looms); err != nil {
		return err
	}
	if _, err := handle.Start(ctx, s.eng.In(s.store.WithTx(tx)), o.ID, o); err != nil {
		return err
	}
	if regret {
		return tx.Rollback()
	}
	return tx.Commit()
}

// tell prints the outcome of an order.
func (s shop) tell(ctx context.Context, o Order) {
	switch said, err := handle.Handle(s.eng, o.ID).Result(ctx); {
	case errors.Is(err, engine.ErrNotFound):
		fmt.Printf("%s: %s changed her mind, and there is no workflow\n", o.ID, o.Customer)
	case errors.Is(err, errSoldOut):
		fmt.Printf("%s: %s wants %d: sold out, and nothing is booked\n", o.ID, o.Customer, o.Looms)
	case err != nil:
		fmt.Printf("%s: %v\n", o.ID, err)
	default:
		fmt.Printf("%s: %s\n", o.ID, said)
	}
}

// count compares the stock with the book.
func (s shop) count(ctx context.Context) error {
	var orders, left, booked int
	err := s.db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM orders), (SELECT looms FROM stock),
		(SELECT coalesce(sum(looms), 0) FROM book)`).Scan(&orders, &left, &booked)
	if err != nil {
		return err
	}
	fmt.Printf("\n%d orders; %d looms left and %d in the book, of 10\n", orders, left, booked)
	if left+booked != 10 {
		return errors.New("the stock and the book do not agree")
	}
	return nil
}
