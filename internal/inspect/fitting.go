package inspect

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/namespace"
	"github.com/weft-go/weft/internal/record"
)

// CheckFilter refuses a filter that no workflow can match.
func CheckFilter(f weft.Filter) error { return checkFilter(f) }

// A Fit is a workflow that fits a filter.
type Fit struct {
	ID         string
	Generation string
	Life       int
	TakenUp    int64 // when an operator has reset or resumed it last, in microseconds; 0: never
	Held       int64 // when it was protected, in microseconds; -1: it is not
	Err        error // its record is damaged; nothing else but the ID is known
}

// A Place is how far somebody has come in what fits a filter.
type Place struct {
	Behind []byte
	Scan   bool // there were no lists at the beginning, and all workflows are read instead
}

// Fitting returns the workflows that have fitted f since a time, for which also is true, behind a place; nil is the
// beginning. It returns at most n, the place behind them, and whether there may be more.
//
// The order is one in which no workflow moves: by creation, or by id, or, if f has a Status, by the time at which
// workflows came into it. One that comes into it later is behind the end. So a workflow that fits
// all the time is returned once.
func (e *Reader) Fitting(ctx context.Context, f weft.Filter, since time.Time, at *Place, n int, also func(ctx context.Context, wf *journal.Workflow) (bool, error)) (fits []Fit, next *Place, more bool, _ error) {
	if at == nil {
		listed, err := e.listsComplete(ctx)
		if err != nil {
			return nil, nil, false, err
		}
		at = &Place{Scan: !listed}
	}
	s := selection{f, since, also}
	lists, err := e.listsOf(ctx, s.read(), cursor{Scan: at.Scan}, true)
	if err != nil {
		return nil, nil, false, err
	}
	next = &Place{at.Behind, at.Scan}
	var outdated []*row
	defer func() { e.unlist(ctx, outdated) }()
	for w, read := e.walk(lists[:1], cursor{Place: at.Behind, Scan: at.Scan}, n+1), 0; ; {
		room := min(n-len(fits), mostRows-read)
		rows, err := w.take(ctx, max(room, 1))
		if err != nil || len(rows) == 0 || room <= 0 {
			return fits, next, len(rows) > 0, err
		}
		read += len(rows)
		got := make([]*Fit, len(rows))
		err = together(len(rows), func(i int) (err error) {
			got[i], err = e.fit(ctx, s, rows[i])
			return err
		})
		if err != nil {
			return nil, nil, false, err
		}
		for i, row := range rows {
			if got[i] != nil {
				fits = append(fits, *got[i])
			}
			if row.outdated {
				outdated = append(outdated, row)
			}
			next.Behind = row.at.Place
		}
	}
}

// fit returns the workflow of a row, if it is in the selection.
func (e *Reader) fit(ctx context.Context, s selection, r *row) (*Fit, error) {
	if err := errors.Join(e.Refused(), ctx.Err()); err != nil {
		return nil, err
	}
	wf, err := r.in.open(ctx, r)
	if record.Damaged(err) && s.mayHave(r.id) {
		return &Fit{ID: r.id, Err: err}, nil
	}
	if record.Damaged(err) {
		return nil, nil
	}
	if err != nil || wf == nil || !s.has(wf) {
		return nil, err
	}
	if ok, err := s.also(ctx, wf); !ok || err != nil {
		return nil, err
	}
	fit := &Fit{ID: wf.ID, Generation: wf.Generation, Life: wf.Life, TakenUp: max(wf.Resumed, wf.TakenUp()), Held: -1}
	if wf.Protected != nil {
		fit.Held = wf.Protected.At
	}
	return fit, nil
}

// A selection is what has fitted a filter since a time.
type selection struct {
	filter weft.Filter
	since  time.Time
	also   func(ctx context.Context, wf *journal.Workflow) (bool, error)
}

// byTime reports whether the times of the filter are those at which workflows came into their status.
func (s selection) byTime() bool { return s.filter.Status != "" && byStatus(s.filter) }

// read returns the filter for the lists that are read. Without a Status, a list by type or label has
// workflows at places that change with their status. Then all workflows are read, in the order of
// their creation.
func (s selection) read() weft.Filter {
	f := s.filter
	if byStatus(f) && f.Status == "" {
		f = weft.Filter{After: f.After, Before: f.Before}
	}
	if s.byTime() {
		f.Before = earlier(f.Before, s.since.Truncate(time.Microsecond).Add(time.Microsecond)) // what came just then is there
	} else {
		f.Before = earlier(f.Before, s.since.Truncate(time.Millisecond).Add(time.Millisecond))
	}
	return f
}

// has reports whether wf is in the selection, apart from also.
func (s selection) has(wf *journal.Workflow) bool {
	f := s.filter
	f.After, f.Before = time.Time{}, time.Time{}
	last := journal.Micro(s.since)
	at := created(wf)
	switch {
	case !selectsRecord(f, wf), at.After(s.since):
		return false
	case f.Status != "" && wf.Since() > last:
		return false
	case f.Attention && !needed(wf, last):
		return false
	}
	if s.byTime() {
		at = journal.Time(wf.Since())
	}
	return (s.filter.After.IsZero() || !at.Before(s.filter.After)) &&
		(s.filter.Before.IsZero() || at.Before(s.filter.Before))
}

// mayHave reports whether a workflow of which only the id is known may be in the selection: not one of a namespace that
// the filter leaves out.
func (s selection) mayHave(id string) bool {
	f := s.filter
	of, _, _ := namespace.Split(id)
	wanted := f.Labels[namespace.Label]
	return strings.HasPrefix(id, f.IDPrefix) && (wanted == "" || wanted == of) && (!f.NoNamespace || of == "")
}

// needed reports whether wf has needed an operator since a time, in microseconds, or longer.
func needed(wf *journal.Workflow, since int64) bool {
	for _, a := range wf.Attention {
		if a.Since <= since {
			return true
		}
	}
	return false
}
