package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/export"
	"github.com/weft-go/weft/internal/follow"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/storage"
)

// eventBytes is how many bytes the events of a page have at most, if it has more than one.
const eventBytes = 4 << 20

// placeOf returns the place of the event with an id. The error is ErrInvalid if no event has such an id.
func placeOf(id string) (journal.Place, error) {
	p, ok := journal.EventPlace(id)
	if !ok || p.Checkpoint == 0 { // no checkpoint has this number
		return p, payload.Invalid("id of event", id, "is the id of no event")
	}
	return p, nil
}

// has reports whether an entry has the event with an id, whose place it is.
func has(c *journal.Entry, p journal.Place, id string) bool {
	return c.Number == p.Checkpoint && p.Event < len(c.Events) && journal.EventID(c.Time, p) == id
}

// eventOf returns an event of an entry.
func eventOf(c *journal.Entry, i int) weft.Event {
	return weft.Event{ID: journal.EventID(c.Time, journal.Place{Checkpoint: c.Number, Event: i}), Checkpoint: c.Number, Time: c.Time, Event: c.Events[i]}
}

// sizeOf returns about how many bytes an event has.
func sizeOf(e *checkpoint.Event) int {
	return 100 + len(e.Result) + len(e.Error) + len(e.Stack) + len(e.Why) + len(e.Other) + len(e.Branch)
}

// ends reports whether a run that had ended, or not, has ended with the event e.
func ends(ended bool, e checkpoint.Event) bool {
	return e.Kind == checkpoint.KindEnded || ended && !export.TakesEndBack(e)
}

// Events is Engine.Events.
func (e *Reader) Events(ctx context.Context, id string, r weft.PageRequest) (weft.Page[weft.Event], error) {
	call := waiting.New(ctx, "events of workflow", id)
	waiting.For(call, "the store to read")
	var p weft.Page[weft.Event]
	err := readLife(func() (begun bool, err error) {
		p, err = e.eventPage(call, id, r)
		return false, err
	})
	if err != nil {
		return weft.Page[weft.Event]{}, call.Explain(err)
	}
	return p, nil
}

func (e *Reader) eventPage(ctx context.Context, id string, r weft.PageRequest) (p weft.Page[weft.Event], _ error) {
	if r.Limit < 0 || r.Limit > mostPage {
		return p, fmt.Errorf("%w: a page of %d events: Limit is 1 to %d, or 0 for %d", weft.ErrInvalid, r.Limit, mostPage, usualPage)
	}
	var from journal.Place
	if r.Cursor != "" {
		at, err := placeOf(r.Cursor)
		if err != nil {
			return p, err
		}
		from = at
	}
	wf, err := e.Load(ctx, id)
	if err != nil {
		return p, err
	}
	page := &eventPage{Page: weft.Page[weft.Event]{Next: r.Cursor}, limit: cmp.Or(r.Limit, usualPage), noData: r.NoData}
	if r.Ascending {
		err = e.eventsUp(ctx, wf, from, page)
	} else {
		err = e.eventsDown(ctx, wf, from, page)
	}
	return page.Page, err
}

// An eventPage is a page that is being filled.
type eventPage struct {
	weft.Page[weft.Event]
	limit, size int
	noData      bool
}

// add adds an event, if there is room. Otherwise it returns false, and the page has more.
func (p *eventPage) add(c *journal.Entry, i int) bool {
	e := eventOf(c, i)
	if p.noData {
		e.Result, e.Codec = nil, ""
	}
	p.size += sizeOf(&e.Event)
	if p.HasMore = len(p.Data) == p.limit || p.size > eventBytes && len(p.Data) > 0; p.HasMore {
		return false
	}
	p.Data = append(p.Data, e)
	p.Next = e.ID
	return true
}

// eventsUp adds the events behind a place, or from the first of the present life on.
func (e *Reader) eventsUp(ctx context.Context, wf *journal.Workflow, from journal.Place, p *eventPage) error {
	cursor, next, first, ended := p.Next, wf.Base, 0, false
	if cursor != "" {
		next, first = from.Checkpoint, from.Event+1
	}
	found := false
	for c, err := range journal.Log(ctx, e.Store, wf, next, p.limit+2) {
		switch {
		case err != nil:
			return e.changed(ctx, wf, err)
		case !found && cursor != "" && !has(&c, from, cursor):
			return e.changed(ctx, wf, &weft.EventsGoneError{WorkflowID: wf.ID, After: cursor})
		case c.Number != next:
			return e.changed(ctx, wf, missing(wf, next))
		}
		for i, ev := range c.Events {
			ended = ends(ended, ev)
			if i >= first && !p.add(&c, i) {
				return nil
			}
		}
		found, next, first = true, c.Next(), 0
	}
	switch {
	case cursor != "" && !found:
		return e.changed(ctx, wf, &weft.EventsGoneError{WorkflowID: wf.ID, After: cursor})
	case ended:
		return nil // nothing is purged before it has ended
	}
	return e.SameGeneration(ctx, wf)
}

// eventsDown adds the events before a place, or from the last one on, down to the first of the present
// life.
func (e *Reader) eventsDown(ctx context.Context, wf *journal.Workflow, from journal.Place, p *eventPage) error {
	cursor, found := p.Next, uint64(0)
	for c, err := range journal.LogBack(ctx, e.Store, wf, from.Checkpoint, p.limit+2) {
		last := len(c.Events) - 1
		switch {
		case err != nil:
			return e.changed(ctx, wf, err)
		case found > 0 && c.Next() != found:
			return e.changed(ctx, wf, missing(wf, c.Next()))
		case found > 0 || cursor == "":
		case !has(&c, from, cursor):
			return e.changed(ctx, wf, &weft.EventsGoneError{WorkflowID: wf.ID, After: cursor})
		default:
			last = from.Event - 1
		}
		for i := last; i >= 0; i-- {
			if !p.add(&c, i) {
				return nil
			}
		}
		found = c.Number
	}
	switch {
	case found == 0 && cursor != "":
		return e.changed(ctx, wf, &weft.EventsGoneError{WorkflowID: wf.ID, After: cursor})
	case found > 0 && found != wf.Base:
		return e.changed(ctx, wf, missing(wf, wf.Base))
	}
	return nil
}

func missing(wf *journal.Workflow, n uint64) error {
	return fmt.Errorf("%w: checkpoint %d of %q is missing", storage.ErrCorrupt, n, wf.ID)
}

// changed returns the error to return for cause, which was met while the history of wf was read: ErrBusy
// if wf has changed since it was read, so that a cause in the history may be due to that, and ErrNotFound if it
// was purged.
func (e *Reader) changed(ctx context.Context, wf *journal.Workflow, cause error) error {
	_, gone := errors.AsType[*weft.EventsGoneError](cause)
	if !gone && !errors.Is(cause, storage.ErrCorrupt) {
		return cause
	}
	now, err := e.Load(ctx, wf.ID)
	switch {
	case err != nil:
		return err
	case now.Generation != wf.Generation:
		return fmt.Errorf("%w: it was purged while its events were read", payload.NotFound(wf.ID))
	case string(now.Raw()) != string(wf.Raw()):
		return fmt.Errorf("%w: workflow %q has changed while its events were read; read again", weft.ErrBusy, wf.ID)
	}
	return cause
}

// Follow is Engine.Follow.
func (e *Reader) Follow(ctx context.Context, id, after string) iter.Seq2[weft.Event, error] {
	return func(yield func(weft.Event, error) bool) {
		call := waiting.New(ctx, "events of workflow", id)
		f := &follower{Reader: e, id: id, yield: yield, last: after}
		if err := f.follow(call); err != nil {
			yield(weft.Event{}, call.Explain(err))
		}
	}
}

// A follower follows the events of one workflow.
type follower struct {
	*Reader
	id    string
	yield func(weft.Event, error) bool
	log   *follow.Follower

	wf    *journal.Workflow // as it was read last
	next  uint64            // the number of the checkpoint to come; 0: the first of the present life
	first int               // the event of that checkpoint that is to be given first
	from  journal.Place     // of the event behind which the caller continues, until it is found; then zero
	last  string            // the id of that event, or of the one that was given last
	ended bool              // the run has ended with it
	over  bool              // the caller wants no more
}

// follow gives events until the run has ended, or the caller wants no more.
func (f *follower) follow(ctx context.Context) (err error) {
	if err := payload.CheckID(f.id); err != nil {
		return err
	}
	if f.last != "" {
		if f.from, err = placeOf(f.last); err != nil {
			return err
		}
		f.next, f.first = f.from.Checkpoint, f.from.Event+1
	}
	waiting.For(ctx, "the store to read")
	if err := f.begin(ctx); err != nil {
		return err
	}
	defer f.log.Close()
	defer f.watch(ctx)()
	least := f.PollInterval / 4
	for pause := least; ; {
		more, err := f.round(ctx)
		if err != nil || f.over {
			return err
		}
		switch {
		case more:
			pause = least
		case f.wf.Status.Terminal():
			return nil // it had ended before nothing was found
		default:
			waiting.For(ctx, "the next event")
			if err := f.wait(ctx, pause); err != nil {
				return err
			}
			pause = min(2*pause, f.PollInterval)
			waiting.For(ctx, "the store to read")
		}
		if err := f.load(ctx); err != nil || f.over {
			return err
		}
	}
}

// begin reads the record of the workflow, follows the log that it names, and reads the record again: what is
// appended after that is kept.
func (f *follower) begin(ctx context.Context) error {
	wf, err := f.Load(ctx, f.id)
	for err == nil {
		f.log = f.Hub.Follow(wf.Log().Prefix())
		was := wf
		if wf, err = f.Load(ctx, f.id); err == nil && wf.Generation == was.Generation {
			f.wf = wf
			return nil
		}
		f.log.Close() // it was purged meanwhile
	}
	return err
}

// watch has the follower look when another process has written to the history, until the function that
// it returns is called. That is a hint: wait looks now and then.
func (f *follower) watch(ctx context.Context) (stop func()) {
	w, ok := storage.As[storage.Watcher](f.Store)
	if !ok {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	log := f.wf.Log().Prefix()
	var watching sync.WaitGroup
	watching.Go(func() { _ = w.Watch(ctx, log, f.log.Nudge) })
	return func() {
		cancel()
		watching.Wait()
	}
}

// wait waits for something to be appended, or until it is time to look.
func (f *follower) wait(ctx context.Context, pause time.Duration) error {
	look := time.NewTimer(pause)
	defer look.Stop()
	select {
	case <-f.log.Some():
	case <-look.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-f.Closing:
		return weft.ErrClosed
	}
	return nil
}

// round gives the events that there are now. more says that it has given some, or has to read again.
func (f *follower) round(ctx context.Context) (more bool, err error) {
	for c, err := range journal.Log(ctx, f.Store, f.wf, cmp.Or(f.next, f.wf.Base), mostPage) {
		if err == nil {
			err = f.reach(ctx, &c)
		}
		if err != nil {
			return f.again(ctx, err)
		}
		if more = true; f.over {
			return false, nil
		}
	}
	if f.from != (journal.Place{}) {
		return f.again(ctx, f.gone())
	}
	return more, nil
}

// load reads the record of the workflow again.
func (f *follower) load(ctx context.Context) error {
	was := f.wf
	wf, err := f.Load(ctx, f.id)
	switch {
	case errors.Is(err, weft.ErrNotFound), err == nil && wf.Generation != was.Generation:
		if f.over = f.ended; f.over {
			return nil
		}
		return fmt.Errorf("%w: it was purged before its last event was read", payload.NotFound(f.id))
	case err != nil:
		return err
	case f.next == 0 && wf.Life != was.Life: // nothing had begun yet
		if _, ok := f.log.Kept(f.wf.Log().Checkpoint(was.Base)); !ok {
			return f.gone()
		}
		f.next = was.Base
	}
	f.wf = wf
	return nil
}

func (f *follower) gone() error { return &weft.EventsGoneError{WorkflowID: f.id, After: f.last} }

// again decides what follows from an error of reading the history: to read again, if the workflow has
// changed since its record was read.
func (f *follower) again(ctx context.Context, cause error) (bool, error) {
	if f.next > 0 && f.next < f.wf.Base && errors.Is(cause, storage.ErrCorrupt) {
		return false, f.gone() // it continued as new
	}
	err := f.changed(ctx, f.wf, cause)
	if errors.Is(err, weft.ErrBusy) || errors.Is(err, weft.ErrNotFound) {
		return true, nil
	}
	return false, err
}

// reach gives the events of c, and of what was before it and is not stored any more.
func (f *follower) reach(ctx context.Context, c *journal.Entry) error {
	if f.from != (journal.Place{}) {
		if !has(c, f.from, f.last) {
			return f.gone()
		}
		f.from = journal.Place{}
	}
	for next := cmp.Or(f.next, f.wf.Base); c.Number != next && !f.over; next = f.next {
		key := f.wf.Log().Checkpoint(next)
		raw, ok := f.log.Kept(key)
		if !ok {
			return missing(f.wf, next)
		}
		kept, own, err := journal.OpenEntry(f.wf, storage.Entry{Key: key, Value: raw})
		if err != nil || !own {
			return cmp.Or(err, missing(f.wf, next))
		}
		if err := f.give(ctx, &kept); err != nil {
			return err
		}
	}
	if f.over {
		return nil
	}
	return f.give(ctx, c)
}

// give gives the events of c.
func (f *follower) give(ctx context.Context, c *journal.Entry) error {
	if err := cmp.Or(f.Refused(), ctx.Err()); err != nil {
		return err
	}
	for i, ev := range c.Events {
		f.ended = ends(f.ended, ev)
		if i < f.first {
			continue
		}
		e := eventOf(c, i)
		if f.last = e.ID; !f.yield(e, nil) {
			f.over = true
			return nil
		}
	}
	f.next, f.first = c.Next(), 0
	return nil
}
