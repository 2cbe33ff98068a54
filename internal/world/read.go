package world

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-go/weft/internal/ids"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/storage"
)

// Resolve says how much of an entity or an event is answered.
type Resolve string

// What may be resolved.
const (
	ResolveAll  Resolve = "all"  // everything: the default
	ResolveMeta Resolve = "meta" // without payloads
	ResolveNone Resolve = "none" // with an empty input and no output, and of an event no data at all
)

func (r Resolve) check() error {
	switch r {
	case "", ResolveAll, ResolveMeta, ResolveNone:
		return nil
	}
	return Invalid("resolveData is all, meta or none, got %q", string(r))
}

// An Order is that of a list.
type Order string

// The orders.
const (
	Descending Order = "desc" // the default
	Ascending  Order = "asc"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	mostPages    = 100 // of a list that are looked at for one page of runs
)

// A Page says which part of a list is wanted.
type Page struct {
	Limit  int    // the most items, 1 to 1,000; 0 means 100
	Cursor string // Listed.Tail of the page before; "" begins
	Order  Order
}

// Check returns the page with its defaults, if a list can be answered with it and with r.
func (p Page) Check(r Resolve) (Page, error) {
	if p.Limit == 0 {
		p.Limit = defaultLimit
	}
	if p.Order == "" {
		p.Order = Descending
	}
	if p.Limit < 1 || p.Limit > maxLimit || p.Order != Ascending && p.Order != Descending {
		return p, Invalid("A list takes a limit of 1 to %d and sortOrder asc or desc, got %d and %q", maxLimit, p.Limit, string(p.Order))
	}
	return p, r.check()
}

// A Listed is a page of a list.
type Listed[T any] struct {
	Data    []T     `json:"data"`
	Cursor  *string `json:"cursor"` // Tail if more follows, else nil
	HasMore bool    `json:"hasMore"`
	Tail    string  `json:"tail"` // the place behind the last item; of an empty page the request's cursor
}

// ListedOf returns a page of a list; tail is the place behind its last item.
func ListedOf[T any](data []T, more bool, tail string) *Listed[T] {
	l := &Listed[T]{Data: data, HasMore: more, Tail: tail}
	if data == nil {
		l.Data = []T{}
	}
	if more {
		l.Cursor = &l.Tail
	}
	return l
}

// mustHead returns the head of a run, or a 404.
func (w *World) mustHead(ctx context.Context, run string) (*head, error) {
	return mustHead(ctx, w.store, run)
}

func mustHead(ctx context.Context, s storage.Storage, run string) (*head, error) {
	h, err := headOf(ctx, s, run)
	if err == nil && (h == nil || h.Removed > 0) {
		err = NotFound("Run", run)
	}
	return h, err
}

// readable is mustHead for a call that resolves r.
func (w *World) readable(ctx context.Context, run string, r Resolve) (*head, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	return w.mustHead(ctx, run)
}

// unlessRemoved is mustHead, but returns nil for a run that is not there: it was removed since it was listed.
func (w *World) unlessRemoved(ctx context.Context, run string) (*head, error) {
	h, err := w.mustHead(ctx, run)
	if missing(err) {
		return nil, nil
	}
	return h, err
}

// missing reports whether err is a 404.
func missing(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == 404
}

// Run returns a run.
func (w *World) Run(ctx context.Context, run string, r Resolve) (*Run, error) {
	h, err := w.readable(ctx, run, r)
	if err != nil {
		return nil, err
	}
	return view{w: w, resolve: r}.run(ctx, h)
}

// A RunFilter selects runs. Empty fields select all.
type RunFilter struct {
	WorkflowName string
	Status       Status
}

// Runs returns a page of runs, in the order of their ids. It may return fewer than the limit although more
// follow: it looks at no more than mostPages pages of a list, and ends behind pageBytes of data.
func (w *World) Runs(ctx context.Context, f RunFilter, p Page, r Resolve) (*Listed[*Run], error) {
	p, err := p.Check(r)
	if err != nil {
		return nil, err
	}
	list := keys.WorldList("all", "")
	switch {
	case f.WorkflowName != "":
		list = keys.WorldList("name", f.WorkflowName)
	case f.Status != "":
		list = keys.WorldList("status", string(f.Status))
	}
	var found []*head
	more := true
	for pages := 0; more && len(found) < p.Limit && pages < mostPages; pages++ {
		entries, err := Scan(ctx, w.store, list, append(bytes.Clone(list.Start), storage.AppendKey(nil, p.Cursor)...), p)
		if err != nil {
			return nil, err
		}
		more = len(entries) > p.Limit
		heads, err := reads.Gather(entries[:min(len(entries), p.Limit)], func(e storage.Entry) (*head, error) {
			id, err := keys.Last(e.Key)
			if err != nil {
				return nil, err
			}
			h, err := w.unlessRemoved(ctx, id)
			if h == nil && err == nil {
				h = &head{run: id, Removed: 1}
			}
			return h, err
		})
		if err != nil {
			return nil, err
		}
		for i, h := range heads {
			p.Cursor = h.run
			if h.Removed == 0 && (f.Status == "" || h.Status == f.Status) { // it may have changed since it was listed
				found = append(found, h)
			}
			if len(found) == p.Limit {
				more = more || i+1 < len(heads)
				break
			}
		}
	}
	runs, err := reads.GatherUpTo(pageBytes, found, sizeOf, func(h *head) (*Run, error) { return view{w: w, resolve: r}.run(ctx, h) })
	if err != nil {
		return nil, err
	}
	if len(runs) < len(found) {
		more, p.Cursor = true, runs[len(runs)-1].RunID
	}
	return ListedOf(runs, more, p.Cursor), nil
}

// Scan returns one more than the entries of a page of a list. place is the key of the cursor, if there is one.
func Scan(ctx context.Context, s storage.Storage, list storage.Range, place []byte, p Page) ([]storage.Entry, error) {
	list.Limit, list.Reverse = p.Limit+1, p.Order == Descending
	if p.Cursor != "" {
		switch {
		case bytes.Compare(place, list.Start) < 0 || bytes.Compare(place, list.End) >= 0:
			return nil, Invalid("cursor %.100q is none of this list", p.Cursor)
		case list.Reverse:
			list.End = place
		default:
			list.Start = append(place, 0)
		}
	}
	return s.Scan(ctx, list)
}

// Step returns a step of a run.
func (w *World) Step(ctx context.Context, run, id string, r Resolve) (*Step, error) {
	h, err := w.readable(ctx, run, r)
	if err != nil {
		return nil, err
	}
	raw, err := w.get(ctx, keys.WorldEntity(run, kindStep, id))
	if err == nil && raw == nil {
		err = NotFound("Step", id)
	}
	if err != nil {
		return nil, err
	}
	s, err := openStep(run, id, raw)
	if err != nil {
		return nil, err
	}
	return view{w: w, resolve: r}.step(ctx, h, s)
}

// Steps returns a page of the steps of a run, in the order of their ids.
func (w *World) Steps(ctx context.Context, run string, p Page, r Resolve) (*Listed[*Step], error) {
	return entities(ctx, w, run, kindStep, p, r, func(v view, h *head, id string, raw []byte) (*Step, error) {
		s, err := openStep(run, id, raw)
		if err != nil {
			return nil, err
		}
		return v.step(ctx, h, s)
	})
}

// entities returns a page of the steps or hooks of a run.
func entities[T any](ctx context.Context, w *World, run, kind string, p Page, r Resolve, open func(v view, h *head, id string, raw []byte) (T, error)) (*Listed[T], error) {
	p, err := p.Check(r)
	if err != nil {
		return nil, err
	}
	h, err := w.mustHead(ctx, run)
	if err != nil {
		return nil, err
	}
	return listOf(ctx, w, keys.WorldEntities(run, kind), keys.WorldEntity(run, kind, p.Cursor), p, func(e storage.Entry) (out T, err error) {
		id, err := keys.Last(e.Key)
		if err != nil {
			return out, err
		}
		return open(view{w: w, resolve: r}, h, id, e.Value)
	})
}

// listOf returns a page of a list: what f makes of each entry.
func listOf[T any](ctx context.Context, w *World, list storage.Range, place []byte, p Page, f func(storage.Entry) (T, error)) (*Listed[T], error) {
	entries, err := Scan(ctx, w.store, list, place, p)
	if err != nil {
		return nil, err
	}
	tail := p.Cursor
	all, err := reads.GatherUpTo(pageBytes, entries[:min(len(entries), p.Limit)], sizeOf, f)
	if err == nil && len(all) > 0 {
		tail, err = keys.Last(entries[len(all)-1].Key)
	}
	return ListedOf(all, len(all) < len(entries), tail), err
}

// Hook returns an open hook by its id.
func (w *World) Hook(ctx context.Context, id string, r Resolve) (*Hook, error) {
	o, err := w.ownerAt(ctx, keys.WorldHookRun(id))
	if err != nil {
		return nil, err
	}
	return w.openHook(ctx, o, r, NotFound("Hook", id))
}

// HookByToken returns the open hook that has a token.
func (w *World) HookByToken(ctx context.Context, token string, r Resolve) (*Hook, error) {
	o, err := w.holderOf(ctx, token)
	if err != nil {
		return nil, err
	}
	return w.openHook(ctx, o, r, NotFound("Hook with token", token))
}

// openHook returns a hook that is open; missing if it is not, or if o is nil.
func (w *World) openHook(ctx context.Context, o *owner, r Resolve, missing *Error) (*Hook, error) {
	if o == nil {
		return nil, missing
	}
	h, err := w.readable(ctx, o.Run, r)
	if err != nil {
		return nil, err
	}
	raw, err := w.get(ctx, keys.WorldEntity(o.Run, kindHook, o.Hook))
	if err == nil && raw == nil {
		err = missing
	}
	if err != nil {
		return nil, err
	}
	k, err := openHook(o.Run, o.Hook, raw)
	if err != nil {
		return nil, err
	}
	if k.Disposed > 0 {
		return nil, missing
	}
	return view{w: w, resolve: r}.hook(ctx, h, k)
}

// Hooks returns a page of the open hooks of a run, or, if run is empty, of all runs, in the order of their ids.
func (w *World) Hooks(ctx context.Context, run string, p Page, r Resolve) (*Listed[*Hook], error) {
	if run == "" {
		return w.allHooks(ctx, p, r)
	}
	return entities(ctx, w, run, kindLive, p, r, func(v view, h *head, id string, _ []byte) (*Hook, error) {
		k, err := w.liveHook(ctx, run, id)
		if err != nil {
			return nil, err
		}
		return v.hook(ctx, h, k)
	})
}

// allHooks returns a page of the open hooks of all runs.
func (w *World) allHooks(ctx context.Context, p Page, r Resolve) (*Listed[*Hook], error) {
	p, err := p.Check(r)
	if err != nil {
		return nil, err
	}
	l, err := listOf(ctx, w, keys.WorldHookRuns(), keys.WorldHookRun(p.Cursor), p, func(e storage.Entry) (*Hook, error) {
		o, err := openOwner(e.Key, e.Value)
		if err != nil {
			return nil, err
		}
		k, err := w.openHook(ctx, o, r, NotFound("Hook", o.Hook))
		if missing(err) {
			return nil, nil // it was disposed since it was listed
		}
		return k, err
	})
	if err != nil {
		return nil, err
	}
	l.Data = slices.DeleteFunc(l.Data, func(k *Hook) bool { return k == nil })
	return l, nil
}

// placeOf returns the number of the event with an id.
func placeOf(id string) (uint64, error) {
	if text, ok := strings.CutPrefix(id, string(ids.Event)); ok && len(text) == 26 && strings.Trim(text, "0123456789") == "" {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil && n <= math.MaxUint32 {
			return n, nil // a ULID of digits alone has a time far off, so its number is larger
		}
	}
	n, err := ids.Number(ids.Event, id)
	if err != nil {
		return 0, Invalid("%.100q is no id of an event", id)
	}
	return n, nil
}

// Event returns an event of a run.
func (w *World) Event(ctx context.Context, run, id string, r Resolve) (*Event, error) {
	h, err := w.readable(ctx, run, r)
	if err != nil {
		return nil, err
	}
	n, err := placeOf(id)
	if err != nil || n == 0 || n > h.Seq {
		return nil, NotFound("Event", id)
	}
	e, err := w.eventAt(ctx, h, n)
	if err != nil {
		return nil, err
	}
	if e.id() != id {
		return nil, NotFound("Event", id)
	}
	return view{w: w, resolve: r}.event(e)
}

// Events returns a page of the log of a run.
func (w *World) Events(ctx context.Context, run string, p Page, r Resolve) (*Listed[Event], error) {
	p, err := p.Check(r)
	if err != nil {
		return nil, err
	}
	h, err := w.mustHead(ctx, run)
	if err != nil {
		return nil, err
	}
	var after uint64
	if p.Cursor != "" {
		if after, err = placeOf(p.Cursor); err != nil {
			return nil, err
		}
	}
	return w.eventsAfter(ctx, h, after, p, view{w: w, resolve: r})
}

const (
	readFirst  = 4       // events of a log that are read while it is not known how large they are; then twice as many, and so on
	readAtOnce = 64      // the most: large ones may be behind small ones
	pageBytes  = 8 << 20 // of the data of events, after which a page ends
)

// eventsAfter returns a page of the log of a run that begins behind an event; in descending order, before it. 0 is
// none. The page ends behind pageBytes, so that it does not have more than the memory should hold.
func (w *World) eventsAfter(ctx context.Context, h *head, after uint64, p Page, v view) (*Listed[Event], error) {
	list := keys.WorldEvents(h.run)
	list.Reverse = p.Order == Descending
	switch {
	case after > 0 && list.Reverse:
		list.End = keys.WorldEvent(h.run, after)
	case after > 0:
		list.Start = append(keys.WorldEvent(h.run, after), 0)
	}
	next := after + 1 // events are dense
	if list.Reverse {
		next = min(h.Seq, after-1) // of uint64: 0 less 1 is the largest
	}
	var data []Event
	more, tail := false, p.Cursor
	// It reads few first, then twice as many, and so on, but no more than the page should have if they are as large.
	for n, size, largest := readFirst, 0, 1; !more; n = min(max(1, (pageBytes-size)/largest), 2*n, readAtOnce) {
		list.Limit = min(n, p.Limit+1-len(data))
		entries, err := w.store.Scan(ctx, list)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if more = len(data) == p.Limit || size >= pageBytes; more {
				break
			}
			n, err := keys.Number(entry.Key)
			if err != nil {
				return nil, err
			}
			came := list.Reverse && len(data) == 0 && n > next // since the head was read
			if n != next && !came {
				return nil, w.noEvent(ctx, h, next)
			}
			if next = n + 1; list.Reverse {
				next = n - 1
			}
			e, err := openEvent(h, n, entry.Value)
			if err != nil {
				return nil, err
			}
			out, err := v.event(e)
			if err != nil {
				return nil, err
			}
			data, tail = append(data, *out), out.EventID
			size, largest = size+len(out.EventData), max(largest, len(entry.Value))
		}
		if len(entries) < list.Limit {
			if !more && next > 0 && (list.Reverse || next <= h.Seq) {
				return nil, w.noEvent(ctx, h, next)
			}
			break
		}
		if last := entries[len(entries)-1].Key; list.Reverse {
			list.End = last
		} else {
			list.Start = append(slices.Clone(last), 0)
		}
	}
	return ListedOf(data, more, tail), nil
}

// Correlated returns a page of the events of a correlation: of one run, or, if run is empty, of all, in the order of
// the ids of runs. A cursor of all runs names the run, too: {run}/{event}.
func (w *World) Correlated(ctx context.Context, correlation, run string, p Page, r Resolve) (*Listed[*Event], error) {
	p, err := p.Check(r)
	if err == nil && correlation == "" {
		err = Invalid("correlationId is required")
	}
	if err != nil {
		return nil, err
	}
	var place []byte
	if p.Cursor != "" {
		in, id := run, p.Cursor
		if run == "" {
			i := strings.LastIndexByte(p.Cursor, '/') // the id of a run may have one, too
			in, id = p.Cursor[:max(i, 0)], p.Cursor[i+1:]
		}
		n, err := placeOf(id)
		if err != nil {
			return nil, Invalid("cursor %.100q is none of this list", p.Cursor)
		}
		place = keys.WorldCorrelated(correlation, in, n)
	}
	entries, err := Scan(ctx, w.store, keys.WorldCorrelations(correlation, run), place, p)
	if err != nil {
		return nil, err
	}
	all, err := reads.GatherUpTo(pageBytes, entries[:min(len(entries), p.Limit)], sizeOf, func(entry storage.Entry) (*Event, error) {
		in, err := keys.WorldCorrelatedRun(entry.Key)
		if err != nil {
			return nil, err
		}
		n, err := keys.Number(entry.Key)
		if err != nil {
			return nil, err
		}
		h, err := w.unlessRemoved(ctx, in)
		if h == nil {
			return nil, err
		}
		e, err := w.eventAt(ctx, h, n)
		if missing(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return view{w: w, resolve: r}.event(e)
	})
	if err != nil {
		return nil, err
	}
	more, tail := len(all) < len(entries), p.Cursor
	if len(all) > 0 { // the last event may have been removed
		last := entries[len(all)-1]
		n, err1 := keys.Number(last.Key)
		in, err2 := keys.WorldCorrelatedRun(last.Key)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		if tail = positionID(n); all[len(all)-1] != nil {
			tail = all[len(all)-1].EventID
		}
		if run == "" {
			tail = in + "/" + tail
		}
	}
	all = slices.DeleteFunc(all, func(e *Event) bool { return e == nil })
	return ListedOf(all, more, tail), nil
}
