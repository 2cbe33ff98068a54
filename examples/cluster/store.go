package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/storage"
)

// A place is where orders are stored, and beside them a database of the shop, which the
// engines do not know of.
type place struct {
	make func() (where string, stop func(), err error)
	open func(ctx context.Context, where, process string) (storage.Storage, error)
	shop func(ctx context.Context, where, process string) (target, error)
	cut  func(ctx context.Context, where, process string) error // ends the connections of a process
}

// stores are the values of -store.
var stores = map[string]place{
	"postgres": {make: launch, open: openPostgres, shop: openPostgresShop, cut: cutPostgres},
	"sqlite":   {make: folder, open: openSQLite, shop: openSQLiteShop, cut: cutNothing},
}

func storeNames() string { return strings.Join(slices.Sorted(maps.Keys(stores)), ", ") }

// A target books, and refuses a token that is lower than one that it has seen.
type target interface {
	prepare(ctx context.Context) error // creates the tables
	book(ctx context.Context, resource string, token uint64) error
	booked(ctx context.Context) ([]booking, error) // in order
	close()
}

type booking struct {
	resource string
	token    uint64
}

// A witness reports which checkpoints were acknowledged to this process, under which
// ownership it wrote them, and which were refused.
type witness struct {
	storage.Storage
	process  string
	say      func(string, ...any)
	careless bool
	freezer  *freezer
}

func (w *witness) Unwrap() storage.Storage { return w.Storage }

func (w *witness) Commit(ctx context.Context, b storage.Batch) error {
	id, number, was, is := w.checkpoint(b)
	if number != "" && w.careless {
		b.If = slices.DeleteFunc(slices.Clone(b.If), func(c storage.Condition) bool {
			return strings.HasPrefix(string(c.Key), "wf:"+id) || strings.HasPrefix(string(c.Key), "log:")
		})
	}
	var err error
	if number == "" {
		err = w.Storage.Commit(ctx, b)
	} else {
		err = w.freezer.commit(ctx, w.Storage, b)
	}
	switch {
	case number == "":
	case err == nil:
		w.say("commit %s %s %s", id, number, cmp.Or(is, was))
	case errors.Is(err, storage.ErrConflict):
		w.say("refused %s %s %s", id, number, was) // without the last, a claim
	}
	return err
}

// checkpoint is the last checkpoint in a batch. It also returns which of this process's
// incarnations owned the run before it and, if that changes, after it.
func (w *witness) checkpoint(b storage.Batch) (id, number, was, is string) {
	for _, a := range journal.AppendedBy(b) {
		id, number = a.Workflow.ID, strconv.FormatUint(a.Entry.Number, 10)
	}
	key := string(storage.AppendKey([]byte("wf:"), id))
	for _, c := range b.If {
		if string(c.Key) == key {
			was = w.owner(id, c.Value)
		}
	}
	for _, op := range b.Ops {
		if string(op.Key) == key {
			is = w.owner(id, op.Value)
		}
	}
	return id, number, was, is
}

// owner is the owner in the record of a workflow, if that is one of this process's.
func (w *witness) owner(id string, raw []byte) string {
	wf, err := journal.OpenWorkflow(id, raw)
	if err != nil || !strings.HasPrefix(wf.Owner, w.process+"-") {
		return ""
	}
	return wf.Owner
}
