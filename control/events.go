package control

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// eventParams are the parameters of runs.events.
type eventParams struct {
	RunID       string  `json:"runId" in:"path"`
	ResolveData *string `json:"resolveData,omitempty" in:"query"`
	paging
}

func (p *eventParams) check() []issue { return checkResolveData(p.paging.check(), p.ResolveData) }

// eventBody is an event as a client sees it.
type eventBody struct {
	wire.Event
	at place
}

// eventOf returns an event as k sees it. Who owns a run is for operators of the home namespace
// only, and stacks are for those who operate.
func eventOf(k *principal, c *checkpoint.Checkpoint, position int, data bool) eventBody {
	e := &c.Events[position]
	at := place{c.Number, position}
	b := eventBody{at: at, Event: wire.Event{
		EventID: eventID(c.Time, at), Checkpoint: int64(c.Number), CreatedAt: c.Time.UTC(),
		Kind: string(e.Kind), Operation: e.Operation, Of: e.Of, Name: k.visible(e.Name), Attempt: e.Attempt, SignalID: e.SignalID,
		By: k.visible(e.By), Reason: k.visible(e.Why), Category: e.Category, Branch: e.Branch,
	}}
	if e.Kind == checkpoint.KindClaimed && !k.operates() {
		b.By = ""
	}
	if data {
		b.Result = jsonOf(e.Codec, e.Result)
	}
	if e.Error != "" {
		b.Error = &wire.StructuredError{Message: k.visible(e.Error), Code: e.Sentinel}
		if k.has(scopeOpsRead) {
			b.Error.Stack = e.Stack
		}
	}
	if e.Due != 0 {
		b.Due = time.UnixMicro(e.Due).UTC()
	}
	if id, ok := k.runID(e.Child); ok {
		b.ChildID = id
	}
	if b.Target = e.Which; e.Of == "send" {
		b.Target, _ = k.runID(e.Which)
	}
	return b
}

// operates reports whether k may know which engines there are.
func (k *principal) operates() bool { return k.home && k.has(scopeOpsRead) }

// runEvents answers a page of the events of a run, or follows them.
func runEvents(ctx context.Context, c *call, p *eventParams) (answer, error) {
	id, err := c.at(p.RunID)
	if err != nil {
		return answer{}, err
	}
	data := p.ResolveData == nil || *p.ResolveData == "all"
	if c.request != nil && accepts(c.request.Header, eventStream) {
		return c.followEvents(ctx, id, data)
	}
	page, err := c.eventPage(ctx, id, &p.paging, data)
	return answer{body: page}, err
}

// An eventCursor is the place behind the last event of a page.
type eventCursor struct {
	Checkpoint uint64 `cbor:"1,keyasint"`
	Position   int    `cbor:"2,keyasint"`
}

func (c *call) eventPage(ctx context.Context, id string, p *paging, data bool) (weft.Page[eventBody], error) {
	ascending := p.ascending()
	list := fmt.Sprintf("events:%s:%v", id, ascending)
	var from *place
	if cursor := p.Cursor; cursor != "" {
		var at eventCursor
		if !openCursor(list, cursor, &at) {
			return weft.Page[eventBody]{}, badCursor()
		}
		from = &place{at.Checkpoint, at.Position}
	}
	page := weft.Page[eventBody]{Next: p.Cursor}
	var err error
	if ascending {
		page.Data, page.HasMore, err = c.eventsUp(ctx, id, from, p.limit(), data)
	} else {
		page.Data, page.HasMore, err = c.eventsDown(ctx, id, from, p.limit(), data)
	}
	if err != nil || len(page.Data) == 0 {
		return page, err
	}
	last := page.Data[len(page.Data)-1].at
	page.Next, err = sealCursor(list, &eventCursor{last.checkpoint, last.position})
	return page, err
}

// eventsUp returns the first events behind a place, the oldest first, and whether there are more.
func (c *call) eventsUp(ctx context.Context, id string, from *place, limit int, data bool) (events []eventBody, more bool, err error) {
	_, history, err := c.history(ctx, id, from)
	if err != nil {
		return nil, false, err
	}
	size := 0
	for cp, err := range history {
		if err != nil {
			return nil, false, err
		}
		for i := range cp.Events {
			if from != nil && !(place{cp.Number, i}).after(*from) {
				continue
			}
			e := eventOf(c.who, &cp, i, data)
			size += e.size()
			if len(events) == limit || size > maxPageBytes && len(events) > 0 {
				return events, true, nil
			}
			events = append(events, e)
		}
	}
	return events, false, nil
}

// eventsDown returns the last events before a place, the newest first, and whether there are more.
func (c *call) eventsDown(ctx context.Context, id string, from *place, limit int, data bool) (events []eventBody, more bool, err error) {
	_, history, err := c.history(ctx, id, nil)
	if err != nil {
		return nil, false, err
	}
	last := &newest{most: limit}
reading:
	for cp, err := range history {
		if err != nil {
			return nil, false, err
		}
		for i := range cp.Events {
			if from != nil && !from.after(place{cp.Number, i}) {
				break reading
			}
			last.add(eventOf(c.who, &cp, i, data))
		}
	}
	slices.Reverse(last.events)
	return last.events, last.dropped, nil
}

// newest has the last of the events that were added, in their order: as many as are one page.
type newest struct {
	most    int // events
	events  []eventBody
	size    int  // bytes of events
	dropped bool // there were more
}

func (n *newest) add(e eventBody) {
	n.events = append(n.events, e)
	n.size += e.size()
	for len(n.events) > n.most || n.size > maxPageBytes && len(n.events) > 1 {
		n.size -= n.events[0].size()
		n.events[0] = eventBody{} // so that its result is not kept
		n.events, n.dropped = n.events[1:], true
	}
}

// size is about how many bytes of JSON an event has.
func (b *eventBody) size() int {
	n := 400 + len(b.Result) + len(b.Name) + len(b.Reason) + len(b.Branch)
	if b.Error != nil {
		n += len(b.Error.Message) + len(b.Error.Code) + len(b.Error.Stack)
	}
	return n
}

// history returns a run's record, and its history from a place on, or from the beginning.
func (c *call) history(ctx context.Context, id string, from *place) (*journal.Workflow, iter.Seq2[checkpoint.Checkpoint, error], error) {
	wf, err := c.record(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if from == nil || from.checkpoint <= wf.Base {
		return wf, c.engine.History(ctx, id), nil
	}
	if _, err := c.store.Get(ctx, keys.Checkpoint(id, from.checkpoint)); err != nil {
		if errors.Is(err, storage.ErrNotFound) { // a place that this history does not have
			return wf, c.engine.History(ctx, id), nil
		}
		return nil, nil, err
	}
	since := *wf
	since.Base = from.checkpoint
	return wf, wholeLife(ctx, c.store, wf, journal.History(ctx, c.store, &since)), nil
}

// record returns the record of a run.
func (p *Plane) record(ctx context.Context, id string) (*journal.Workflow, error) {
	wf, err := journal.Load(ctx, p.store, id)
	if errors.Is(err, storage.ErrNotFound) || err == nil && wf.Tombstone() {
		return nil, errNoRun()
	}
	return wf, err
}

// wholeLife yields a part of a history. An error of it is that there is no such run, if the run was
// purged while it was read.
func wholeLife(ctx context.Context, s storage.Storage, wf *journal.Workflow, history iter.Seq2[checkpoint.Checkpoint, error]) iter.Seq2[checkpoint.Checkpoint, error] {
	return func(yield func(checkpoint.Checkpoint, error) bool) {
		for cp, err := range history {
			if err != nil {
				switch now, e := journal.Load(ctx, s, wf.ID); {
				case errors.Is(e, storage.ErrNotFound) || e == nil && now.Generation != wf.Generation:
					err = errNoRun()
				case e == nil && now.Life != wf.Life:
					err = fmt.Errorf("%w: run has continued as new while its events were read; read again", engine.ErrBusy)
				}
			}
			if !yield(cp, err) || err != nil {
				return
			}
		}
	}
}

// noSuchRun reports whether an error says that there is no such run.
func noSuchRun(err error) bool {
	p, ok := errors.AsType[*problem](err)
	return errors.Is(err, engine.ErrNotFound) || ok && p.Code == "not_found"
}
