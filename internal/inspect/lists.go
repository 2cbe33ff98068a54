package inspect

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/namespace"
	"github.com/weft-go/weft/storage"
)

// A list is a sequence of rows: several spans of keys that are merged.
type list struct {
	spans   []span
	reverse bool

	// open returns the workflow of a row, or nil if the row is passed over. It sets row.id.
	open func(ctx context.Context, r *row) (*journal.Workflow, error)

	// past returns where to go on after a key, or nil: behind it.
	past func(key []byte) []byte
}

// A span is a range of keys with a common prefix. What follows the prefix is the place of a key,
// by which spans are merged.
type span struct {
	prefix []byte
	storage.Range
}

// A row is an entry of the store that leads to a workflow.
type row struct {
	storage.Entry
	in       *list
	at       cursor // behind the row
	id       string
	outdated bool // the workflow's record does not say that it is in this list
}

// listsOf returns the lists that are read for f, one after the other: the narrowest that there
// is. What it has beyond f is passed over.
func (e *Reader) listsOf(ctx context.Context, f weft.Filter, c cursor, ascending bool) ([]*list, error) {
	byCreation := func(r storage.Range) *list {
		s := span{r.Start, sinceCreation(r, f.After, f.Before)}
		return &list{spans: []span{s}, reverse: !ascending, open: e.openListed}
	}
	switch {
	case f.IDPrefix != "":
		return []*list{{spans: []span{{nil, keys.WorkflowsBy(f.IDPrefix)}}, open: openRecord, past: pastWorkflow}}, nil
	case c.Scan:
		if byStatus(f) { // the times are not those of the creation, but none is before it
			f.After = time.Time{}
		}
		return []*list{byCreation(keys.IndexAll())}, nil
	case f.Parent != "":
		return []*list{byCreation(keys.ListOfChildren(f.Parent))}, nil
	case f.Attention:
		return []*list{
			byCreation(keys.AttendedAll()),
			{spans: []span{{nil, keys.TodoUntil(0, e.Now())}}, open: e.openWaiting},
			{spans: []span{{nil, keys.Lines()}}, open: e.openWaiting},
			{spans: []span{{nil, keys.HeldAfter("")}}, open: e.openHeld},
		}, nil
	}
	statuses := []checkpoint.Status{f.Status}
	if f.Status == "" {
		statuses = []checkpoint.Status{checkpoint.StatusPending, checkpoint.StatusRunning, checkpoint.StatusCompleted, checkpoint.StatusFailed, checkpoint.StatusCancelled}
	}
	before := earlier(f.Before, journal.Time(c.Until))
	l := &list{reverse: !ascending, open: e.openListed}
	add := func(r storage.Range) {
		l.spans = append(l.spans, span{r.Start, keys.Between(r, f.After, before)})
	}
	switch {
	case len(f.Labels) > 0:
		name := slices.Min(slices.Collect(maps.Keys(f.Labels)))
		if f.Labels[namespace.Label] != "" {
			name = namespace.Label // so that it does not matter what other namespaces have
		}
		for _, s := range statuses {
			add(keys.LabelledOf(name, f.Labels[name], string(s)))
		}
	case f.Workflow != "" || f.Status != "":
		types := []string{f.Workflow}
		if f.Workflow == "" {
			var err error
			if types, err = e.types(ctx); err != nil {
				return nil, err
			}
		}
		for _, t := range types {
			for _, s := range statuses {
				add(keys.ListOf(t, string(s)))
			}
		}
	default:
		l = byCreation(keys.IndexAll())
	}
	return []*list{l}, nil
}

// types returns the types of all workflows in lists.
func (e *Reader) types(ctx context.Context) (types []string, _ error) {
	for r := keys.Lists(); ; {
		r.Limit = 1
		page, err := e.Store.Scan(ctx, r)
		if err != nil || len(page) == 0 {
			return types, err
		}
		t, end, err := keys.ListedType(page[0].Key)
		if err != nil || bytes.Compare(end, page[0].Key) <= 0 { // no key of a list
			r.Start = append(page[0].Key, 0)
			continue
		}
		types, r.Start = append(types, t), end
	}
}

// openListed returns the workflow of an entry of a list, or nil if it is outdated: the workflow was
// changed since the entry was read, or a release that did not know the list has changed it.
func (e *Reader) openListed(ctx context.Context, r *row) (*journal.Workflow, error) {
	var err error
	if r.id, err = journal.OpenRow(r.Entry); err != nil {
		return nil, err
	}
	wf, err := journal.Load(ctx, e.Store, r.id)
	if errors.Is(err, storage.ErrNotFound) {
		r.outdated = true
		return nil, nil
	}
	if err != nil || wf.Listed(r.Key) {
		return wf, err
	}
	r.outdated = true
	return nil, nil
}

// openRecord returns the workflow of an entry of its own, or nil if the entry is of something else
// of a workflow.
func openRecord(_ context.Context, r *row) (*journal.Workflow, error) {
	id, own, _, err := keys.UnderWorkflow(r.Key)
	if r.id = id; err != nil || !own {
		return nil, err
	}
	wf, err := journal.OpenWorkflow(id, r.Value)
	if err == nil && wf.Tombstone() {
		return nil, nil
	}
	return wf, err
}

// pastWorkflow returns the key behind everything that is stored under the id in key, if key is of
// something else than the workflow's record.
func pastWorkflow(key []byte) []byte {
	if _, own, end, err := keys.UnderWorkflow(key); err == nil && !own {
		return end
	}
	return nil
}

// openWaiting returns the workflow for which an entry waits to be claimed or admitted, unless its
// record has an Attention.
func (e *Reader) openWaiting(ctx context.Context, r *row) (*journal.Workflow, error) {
	wf, err := e.openAbout(ctx, r)
	if err != nil || wf == nil || !bytes.Equal(wf.Todo, r.Key) {
		return nil, err
	}
	return wf, nil
}

// openHeld returns the workflow of an entry that says who owns it, unless its record has an
// Attention.
func (e *Reader) openHeld(ctx context.Context, r *row) (*journal.Workflow, error) {
	wf, err := e.openAbout(ctx, r)
	if err != nil || wf == nil {
		return nil, err
	}
	if owner, err := keys.Incarnation(r.Key); err != nil || wf.Owner != owner {
		return nil, err
	}
	return wf, nil
}

func (e *Reader) openAbout(ctx context.Context, r *row) (*journal.Workflow, error) {
	var err error
	if r.id, err = keys.ID(r.Key); err != nil {
		return nil, err
	}
	wf, err := journal.Load(ctx, e.Store, r.id)
	if errors.Is(err, storage.ErrNotFound) || err == nil && (wf.Tombstone() || wf.Status.Terminal() || len(wf.Attention) > 0) {
		return nil, nil
	}
	return wf, err
}

// mostOutdated is how many outdated entries of lists one page removes.
const mostOutdated = 100

// unlist removes entries of lists that are outdated, unless the workflow's record changes
// meanwhile. What is not removed now is passed over again.
func (e *Reader) unlist(ctx context.Context, rows []*row) {
	for _, r := range rows[:min(len(rows), mostOutdated)] {
		if _, err := e.Store.Get(ctx, r.Key); err != nil {
			continue // its workflow was only changed meanwhile
		}
		b := storage.Batch{Ops: []storage.Op{storage.Delete(r.Key)}}
		wf, err := journal.Load(ctx, e.Store, r.id)
		switch key := keys.Workflow(r.id); {
		case errors.Is(err, storage.ErrNotFound):
			b.If = append(b.If, storage.Absent(key))
			b.Ops = append(b.Ops, storage.Delete(key)) // a batch changes what has to be absent
		case err == nil && !wf.Listed(r.Key):
			b.If = append(b.If, wf.Unchanged())
		default:
			continue
		}
		_ = e.Store.Commit(ctx, b) // if it fails, the entry is passed over again
	}
}

// A walk goes through several lists, one after the other.
type walk struct {
	store storage.Storage
	lists []*list
	at    cursor // behind the row that was taken last
	rows  *rows  // of the list at; nil: it is not begun
	chunk int
}

// walk returns a walk from a place on that reads about so many rows at once.
func (e *Reader) walk(lists []*list, from cursor, chunk int) *walk {
	return &walk{store: e.Store, lists: lists, at: from, chunk: chunk}
}

// take returns the next rows, at most n; none at the end.
func (w *walk) take(ctx context.Context, n int) (taken []*row, _ error) {
	for len(taken) < n && w.at.List < len(w.lists) {
		if w.rows == nil {
			w.rows = w.lists[w.at.List].rows(w.store, w.at.Place, w.chunk)
		}
		r, err := w.rows.next(ctx)
		if err != nil {
			return nil, err
		}
		if r == nil {
			w.at.List, w.at.Place, w.rows = w.at.List+1, nil, nil
			continue
		}
		w.at.Place = r.at.Place
		r.at = w.at
		taken = append(taken, r)
	}
	return taken, nil
}

// rows are what is left of a list.
type rows struct {
	*list
	store storage.Storage
	parts []*part
}

// A part is what is left of a span.
type part struct {
	span
	page []storage.Entry // read already
	last bool            // nothing follows the page
	at   []byte          // the key that was taken last; nil: none
}

// rows returns the rows of l behind a place; nil is the beginning. It reads about so many at once.
func (l *list) rows(s storage.Storage, place []byte, chunk int) *rows {
	m := &rows{list: l, store: s}
	for _, s := range l.spans {
		s.Reverse = l.reverse
		s.Limit = max(chunk/len(l.spans), min(chunk, 10))
		if l.past != nil {
			s.Limit = min(chunk, 16) // most of what follows may be passed over
		}
		if place != nil {
			s.Range = l.behind(s.Range, append(bytes.Clone(s.prefix), place...))
		}
		m.parts = append(m.parts, &part{span: s})
	}
	return m
}

// behind returns what is left of r behind key.
func (l *list) behind(r storage.Range, key []byte) storage.Range {
	if r.Reverse {
		if r.End == nil || bytes.Compare(key, r.End) < 0 {
			r.End = key
		}
		return r
	}
	next := append(bytes.Clone(key), 0)
	if l.past != nil {
		if past := l.past(key); past != nil {
			next = past
		}
	}
	if bytes.Compare(next, r.Start) > 0 {
		r.Start = next
	}
	return r
}

// next returns the next row, or nil at the end.
func (m *rows) next(ctx context.Context) (*row, error) {
	var first *part
	var place []byte
	for _, p := range m.parts {
		if err := p.fill(ctx, m); err != nil {
			return nil, err
		}
		if len(p.page) == 0 {
			continue
		}
		at := p.page[0].Key[len(p.prefix):]
		if before := bytes.Compare(at, place) < 0; first == nil || before != m.reverse {
			first, place = p, at
		}
	}
	if first == nil {
		return nil, nil
	}
	r := &row{Entry: first.page[0], in: m.list, at: cursor{Place: place}}
	first.page, first.at = first.page[1:], r.Key
	if m.past != nil {
		past := m.past(r.Key)
		for len(first.page) > 0 && bytes.Compare(first.page[0].Key, past) < 0 {
			first.page = first.page[1:]
		}
	}
	return r, nil
}

// fill reads the next page of p if none is left.
func (p *part) fill(ctx context.Context, m *rows) (err error) {
	if len(p.page) > 0 || p.last {
		return nil
	}
	if p.at != nil {
		p.Range = m.behind(p.Range, p.at)
	}
	if p.Start != nil && p.End != nil && bytes.Compare(p.Start, p.End) >= 0 {
		p.last = true
		return nil
	}
	if p.page, err = m.store.Scan(ctx, p.Range); err != nil {
		return err
	}
	p.last = len(p.page) < p.Limit
	return nil
}

// sinceCreation restricts a list in the order of creation to the times from after to before,
// which is excluded. A zero time is no bound.
func sinceCreation(list storage.Range, after, before time.Time) storage.Range {
	prefix := list.Start
	if !after.IsZero() {
		list.Start = storage.AppendKey(bytes.Clone(prefix), firstSince(after))
	}
	if !before.IsZero() {
		list.End = storage.AppendKey(bytes.Clone(prefix), firstSince(before))
	}
	return list
}

// firstSince returns the least ULID with a time, in milliseconds, that is not before t.
func firstSince(t time.Time) string {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	var id ulid.ULID
	_ = id.SetTime(min(uint64(max(ms, 0)), ulid.MaxTime())) // cannot fail with such a time
	return id.String()
}

// created returns when wf was created, as the order of its generation has it.
func created(wf *journal.Workflow) time.Time {
	id, err := ulid.ParseStrict(wf.Generation)
	if err != nil {
		return journal.Time(wf.CreatedAt)
	}
	return ulid.Time(id.Time())
}
