package upkeep

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/membership"
	"github.com/weft-go/weft/internal/meta"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

// listing is the duty to complete the lists of workflows that an earlier release has written. It
// looks once an hour.
type listing struct {
	incarnation *worker.Incarnation
	last        time.Time   // of the last look; zero before it
	busy        atomic.Bool // a goroutine adds entries
	failed      atomic.Bool // the last one that did so did not come to the end
}

func (d *listing) look(ctx context.Context) error {
	wait := anHour
	if d.failed.Load() {
		wait = time.Minute
	}
	if d.busy.Load() || !d.last.IsZero() && time.Since(d.last) <= wait {
		return nil
	}
	l := d.incarnation
	r, err := meta.ReadLists(ctx, l.Worker.Store)
	if err != nil {
		return fmt.Errorf("read the state of the lists: %w", err)
	}
	again := !r.Done || r.Place != ""
	if !again {
		if again, err = withoutLists(ctx, l.Worker.Store, r.Begun); err != nil {
			return err
		}
	}
	d.last = time.Now()
	if !again {
		return nil
	}
	d.busy.Store(true)
	begun := l.Go(func() {
		defer d.busy.Store(false)
		err := completeLists(ctx, l.Worker, r)
		d.failed.Store(err != nil)
		if err != nil && ctx.Err() == nil {
			l.Worker.Log.Warn("weft: lists of workflows are not complete yet; trying again in a minute", "error", err)
		}
	})
	if !begun {
		d.busy.Store(false)
	}
	return nil
}

// withoutLists reports whether an engine that writes no such entries has used the store since a
// time.
func withoutLists(ctx context.Context, s storage.Storage, since int64) (bool, error) {
	for entry, err := range storage.All(ctx, s, keys.Engines()) {
		if err != nil {
			return false, err
		}
		r, err := membership.OpenRegistration(entry.Key, entry.Value)
		if record.Damaged(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		if mayLack(r, since) {
			return true, nil
		}
	}
	return false, nil
}

// mayLack reports whether an engine may have written workflows without all of their entries after
// a pass that began at a time, or so late before that the pass has not met them. It may have
// written for as long as its lease is valid after its record was, and its clock may be behind.
func mayLack(r *membership.Registration, since int64) bool {
	return !r.Lists && r.Latest().Add(anHour).After(journal.Time(since))
}

// listedAtOnce is how many workflows are read before a pass records how far it has come.
const listedAtOnce = 200

// completeLists makes a pass over all workflows, or goes on with the one that r has begun, and adds
// the entries that are missing. Several engines may do so at once: then one goes on from where
// another has come to.
func completeLists(ctx context.Context, w *worker.Worker, r *meta.ListsRecord) error {
	store := w.Store
	if r.Place == "" {
		r.Begun = journal.Micro(w.Now())
	}
	for {
		all := keys.IndexAll()
		all.Limit = listedAtOnce
		if r.Place != "" {
			all.Start = append(keys.Index(r.Place), 0)
		}
		page, err := store.Scan(ctx, all)
		if err != nil {
			return err
		}
		if err := list(ctx, store, page); err != nil {
			return err
		}
		if r.Place = ""; len(page) == listedAtOnce {
			if r.Place, err = keys.Last(page[len(page)-1].Key); err != nil {
				return err
			}
		}
		r.Done = r.Done || r.Place == ""
		unchanged, put, err := r.Put()
		if err != nil {
			return err
		}
		err = store.Commit(ctx, storage.Batch{If: []storage.Condition{unchanged}, Ops: []storage.Op{put}})
		switch {
		case errors.Is(err, storage.ErrConflict):
			if r, err = meta.ReadLists(ctx, store); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			r.Raw = put.Value
		}
		if r.Place == "" && r.Done {
			w.Log.Info("weft: lists of workflows are complete")
			return nil
		}
	}
}

// list adds what is missing in lists of the workflows of some entries of the list of all.
func list(ctx context.Context, store storage.Storage, entries []storage.Entry) error {
	for _, entry := range entries {
		id, err := journal.OpenRow(entry)
		for again, tries := true, 0; err == nil && again; tries++ {
			if tries == settle.MostTries {
				return fmt.Errorf("list workflow %q: it changes all the time", id)
			}
			again, err = listOne(ctx, store, id)
		}
		if err != nil && !record.Damaged(err) {
			return err
		}
	}
	return nil
}

// listOne adds what is missing in lists of one workflow. It reports whether to try again because
// the workflow was changed meanwhile.
func listOne(ctx context.Context, store storage.Storage, id string) (again bool, _ error) {
	wf, err := journal.Load(ctx, store, id)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	b := storage.Batch{If: []storage.Condition{wf.Unchanged()}}
	for _, key := range wf.Rows() {
		_, err := store.Get(ctx, key)
		if errors.Is(err, storage.ErrNotFound) {
			var row storage.Op
			row, err = journal.PutRow(key, id)
			b.Ops = append(b.Ops, row)
		}
		if err != nil {
			return false, err
		}
	}
	if len(b.Ops) == 0 {
		return false, nil
	}
	err = store.Commit(ctx, b)
	if errors.Is(err, storage.ErrConflict) {
		return true, nil
	}
	return false, err
}
