package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/storage"
)

// eventParams are the parameters of runs.events.
type eventParams struct {
	RunID       string  `json:"runId" in:"path"`
	ResolveData *string `json:"resolveData,omitempty" in:"query"`
	operation.Paging
}

func (p *eventParams) Check() []operation.Issue {
	return checkResolveData(p.Paging.Check(), p.ResolveData)
}

// eventOf returns an event as k sees it. Who owns a run is for operators of the home namespace
// only, and stacks are for those who operate.
func eventOf(k *operation.Principal, e *weft.Event, data bool) wire.Event {
	b := wire.Event{
		EventID: e.ID, Checkpoint: int64(e.Checkpoint), CreatedAt: e.Time.UTC(),
		Kind: string(e.Kind), Operation: e.Operation, Of: e.Of, Name: k.Visible(e.Name), Attempt: e.Attempt, SignalID: e.SignalID,
		By: k.Visible(e.By), Reason: k.Visible(e.Why), Category: e.Category, Branch: e.Branch,
	}
	if e.Kind == checkpoint.KindClaimed && !k.Operates() {
		b.By = ""
	}
	if data {
		b.Result = jsonOf(e.Codec, e.Result)
	}
	if e.Error != "" {
		b.Error = &wire.StructuredError{Message: k.Visible(e.Error), Code: e.Sentinel}
		if k.Has(operation.ScopeOpsRead) {
			b.Error.Stack = e.Stack
		}
	}
	if e.Due != 0 {
		b.Due = time.UnixMicro(e.Due).UTC()
	}
	if id, ok := k.RunID(e.Child); ok {
		b.ChildID = id
	}
	if b.Target = e.Which; e.Of == "send" {
		b.Target, _ = k.RunID(e.Which)
	}
	return b
}

// runEvents answers a page of the events of a run, or follows them.
func runEvents(ctx context.Context, c *call, p *eventParams) (operation.Answer, error) {
	id, err := c.at(p.RunID)
	if err != nil {
		return operation.Answer{}, err
	}
	data := p.ResolveData == nil || *p.ResolveData == "all"
	if c.Request != nil && accepts(c.Request.Header, eventStream) {
		return c.followEvents(ctx, id, data)
	}
	page, err := c.eventPage(ctx, id, &p.Paging, data)
	return operation.Answer{Body: page}, err
}

// An eventCursor is the place behind the last event of a page.
type eventCursor struct {
	Checkpoint uint64 `cbor:"1,keyasint"`
	Position   int    `cbor:"2,keyasint"`

	// ID is that of the event. The place alone may be that of another event by now, in a store that was restored from a
	// backup. "": the cursor is of a release that wrote none.
	ID string `cbor:"3,keyasint,omitempty"`
}

// eventPage returns a page of the events of a run. If the event of the cursor is not there any more, because the
// run has continued as new or was purged, the whole history is behind it.
func (c *call) eventPage(ctx context.Context, id string, p *operation.Paging, data bool) (weft.Page[wire.Event], error) {
	page, r := weft.Page[wire.Event]{Next: p.Cursor}, weft.PageRequest{Limit: p.Most(), Ascending: p.Ascending(), NoData: !data}
	list := fmt.Sprintf("events:%s:%v", id, r.Ascending)
	gone := false
	if p.Cursor != "" {
		var at eventCursor
		if !operation.OpenCursor(list, p.Cursor, &at) {
			return page, operation.BadCursor()
		}
		if r.Cursor = at.ID; at.ID == "" {
			var err error
			r.Cursor, err = c.eventAt(ctx, id, at)
			if gone = errors.Is(err, storage.ErrNotFound); err != nil && !gone {
				return page, err
			}
		}
	}
	found, err := c.Engine.Events(ctx, id, r)
	if eventsGone(err) {
		gone, r.Cursor = true, ""
		found, err = c.Engine.Events(ctx, id, r)
	}
	if err != nil || len(found.Data) == 0 || gone && !r.Ascending {
		return page, err
	}
	for i := range found.Data {
		page.Data = append(page.Data, eventOf(c.Who, &found.Data[i], data))
	}
	n := fit(page.Data)
	page.Data, page.HasMore = page.Data[:n], found.HasMore || n < len(found.Data)
	last := page.Data[len(page.Data)-1].EventID
	place, _ := journal.EventPlace(last)
	page.Next, err = operation.SealCursor(list, &eventCursor{place.Checkpoint, place.Event, last})
	return page, err
}

// eventAt returns the id of the event at a place. The error is storage.ErrNotFound if its checkpoint is not there
// any more.
func (c *call) eventAt(ctx context.Context, id string, at eventCursor) (string, error) {
	wf, err := journal.Load(ctx, c.Store, id)
	if err != nil {
		return "", err
	}
	e, err := journal.Read(ctx, c.Store, wf, at.Checkpoint)
	if err != nil {
		return "", err
	}
	if e == nil {
		return "", storage.ErrNotFound
	}
	return journal.EventID(e.Time, journal.Place{Checkpoint: at.Checkpoint, Event: at.Position}), nil
}

// eventsGone reports whether an error says that events are not stored any more.
func eventsGone(err error) bool {
	_, gone := errors.AsType[*engine.EventsGoneError](err)
	return gone
}

// fit returns how many of events, at least one, have no more bytes than a page may have.
func fit(events []wire.Event) int {
	size := 0
	for i := range events {
		if size += sizeOf(&events[i]); size > operation.MaxPageBytes && i > 0 {
			return i
		}
	}
	return len(events)
}

// sizeOf is about how many bytes of JSON an event has.
func sizeOf(b *wire.Event) int {
	n := 400 + len(b.Result) + len(b.Name) + len(b.Reason) + len(b.Branch)
	if b.Error != nil {
		n += len(b.Error.Message) + len(b.Error.Code) + len(b.Error.Stack)
	}
	return n
}

// record returns the record of a run.
func (c *call) record(ctx context.Context, id string) (*journal.Workflow, error) {
	wf, err := journal.Load(ctx, c.Store, id)
	if errors.Is(err, storage.ErrNotFound) || err == nil && wf.Tombstone() {
		return nil, operation.NoRun(c.Note.RunID)
	}
	return wf, err
}

// noSuchRun reports whether an error says that there is no such run.
func noSuchRun(err error) bool {
	p, ok := errors.AsType[*operation.Problem](err)
	return errors.Is(err, engine.ErrNotFound) || ok && p.Code == "not_found"
}
