package journal

import (
	"maps"
	"slices"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A Row is the value of a workflow's entry in each list. The key says which list and where.
type Row struct {
	ID string `cbor:"1,keyasint"`
}

// Rows returns the keys of the workflow's entries in lists. They follow from its record alone:
// whatever rewrites the record changes them in the same commit. A tombstone has none.
func (w *Workflow) Rows() [][]byte { return w.appendRows(nil) }

func (w *Workflow) appendRows(rows [][]byte) [][]byte {
	if w == nil || w.Tombstone() {
		return rows
	}
	status, since := string(w.Status), Time(w.Since())
	rows = append(rows, keys.Index(w.Generation), keys.Listed(w.Type, status, since, w.Generation))
	if len(w.Labels) > 0 { // to sort nothing would allocate
		for _, label := range slices.Sorted(maps.Keys(w.Labels)) {
			rows = append(rows, keys.Labelled(label, w.Labels[label], status, since, w.Generation))
		}
	}
	if w.Parent != nil {
		rows = append(rows, keys.ListedChild(w.Parent.ID, w.Generation))
	}
	if len(w.Attention) > 0 {
		rows = append(rows, keys.Attended(w.Generation))
	}
	return rows
}

// TakenUp returns when the workflow was last retried or reset in its present life; 0 means never.
func (w *Workflow) TakenUp() (at int64) {
	if n := len(w.Retries); n > 0 {
		at = w.Retries[n-1].At
	}
	if n := len(w.Resets); n > 0 {
		at = max(at, w.Resets[n-1].At)
	}
	return at
}

// Since returns when the workflow came into its status: when it was created, began or was
// last retried or reset, or ended. It never goes back, whatever the clocks of engines say, so that
// nobody who reads a list from its newest entry on meets a workflow twice.
func (w *Workflow) Since() int64 {
	since := max(w.CreatedAt, w.Resumed)
	if w.Status != checkpoint.StatusPending {
		since = max(since, w.StartedAt, w.EndedAt)
	}
	return max(since, w.TakenUp())
}

// sameRows reports whether w has the entries of before. It is quicker than comparing them.
func (w *Workflow) sameRows(before *Workflow) bool {
	return before != nil && w.Tombstone() == before.Tombstone() &&
		w.Generation == before.Generation && w.Type == before.Type && w.Status == before.Status &&
		w.Since() == before.Since() && maps.Equal(w.Labels, before.Labels) &&
		(w.Parent == nil) == (before.Parent == nil) &&
		(len(w.Attention) > 0) == (len(before.Attention) > 0)
}

// Replace encodes next, and appends to ops what stores it in place of before: its record, and
// what this changes in lists. before may be nil, for nothing.
func Replace(ops []storage.Op, before, next *Workflow) ([]storage.Op, error) {
	put, err := next.seal()
	if err != nil {
		return nil, err
	}
	ops = append(ops, put)
	if next.sameRows(before) {
		return ops, nil
	}
	var space [2][4][]byte
	gone, there := before.appendRows(space[0][:0]), next.appendRows(space[1][:0])
	row := &Row{next.ID}
	for _, key := range gone {
		if !contains(there, key) {
			ops = append(ops, storage.Delete(key))
		}
	}
	for _, key := range there {
		if !contains(gone, key) {
			put, err := row.put(key)
			if err != nil {
				return nil, err
			}
			ops = append(ops, put)
		}
	}
	return ops, nil
}

func contains(rows [][]byte, key []byte) bool {
	return slices.ContainsFunc(rows, func(k []byte) bool { return string(k) == string(key) })
}

// PutRow returns the operation that stores a workflow's entry in a list.
func PutRow(key []byte, id string) (storage.Op, error) { return (&Row{id}).put(key) }

func (r *Row) put(key []byte) (storage.Op, error) {
	raw, err := record.Seal(key, Version, r, nil)
	return storage.Put(key, raw), err
}

// OpenRow returns the id in a workflow's entry in a list.
func OpenRow(e storage.Entry) (id string, err error) {
	var r Row
	_, err = record.Open(e.Key, e.Value, Version, &r)
	return r.ID, err
}

// Listed reports whether key is one of the workflow's entries in lists.
func (w *Workflow) Listed(key []byte) bool { return contains(w.Rows(), key) }
