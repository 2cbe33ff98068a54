package journal

import (
	"context"
	"iter"

	"github.com/weft-go/weft/storage"
)

// Next returns the number of the checkpoint that follows.
func (e *Entry) Next() uint64 {
	if e.skip > 0 {
		return e.skip
	}
	return e.Number + 1
}

// Log yields the entries of the generation of wf, from the checkpoint n on, of whatever lives. It reads
// so many at once at most, and fewer if they are large. It does not notice if one is missing: see Entry.Next.
func Log(ctx context.Context, s storage.Storage, wf *Workflow, n uint64, atOnce int) iter.Seq2[Entry, error] {
	r := wf.Log().From(n)
	r.Limit = atOnce
	return entries(ctx, s, wf, r)
}

// LogBack yields the entries of the present life of wf up to the checkpoint n, the last one first. If n is
// 0, it begins with the last one there is. Otherwise it is like Log.
func LogBack(ctx context.Context, s storage.Storage, wf *Workflow, n uint64, atOnce int) iter.Seq2[Entry, error] {
	r := wf.Log().From(wf.Base)
	if n > 0 {
		r.End = append(wf.Log().Checkpoint(n), 0)
	}
	r.Reverse, r.Limit = true, atOnce
	return entries(ctx, s, wf, r)
}

func entries(ctx context.Context, s storage.Storage, wf *Workflow, r storage.Range) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for found, err := range Records(ctx, s, r) {
			var e Entry
			own := true
			if err == nil {
				e, own, err = OpenEntry(wf, found)
			}
			if own && !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// OpenEntry decodes a checkpoint, and reports whether it is one of the generation of wf.
func OpenEntry(wf *Workflow, e storage.Entry) (_ Entry, own bool, err error) {
	c, err := decode(wf, e)
	if err != nil {
		return Entry{}, true, err
	}
	return c, c.generation == wf.Generation, nil
}
