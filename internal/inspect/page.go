package inspect

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/namespace"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/record"
)

// Sizes of a page, and how many entries of lists are read for one that selects few of them.
const (
	usualPage = 100
	mostPage  = 1000
	mostRows  = 10_000
)

// Page is Engine.Page.
func (e *Reader) Page(ctx context.Context, f weft.Filter, r weft.PageRequest) (weft.Page[weft.Info], error) {
	found, p, err := e.page(ctx, f, r, e.newRoster(mostTogether))
	if err != nil {
		return weft.Page[weft.Info]{}, err
	}
	for _, l := range found {
		if l.err != nil {
			l.info = weft.Info{ID: l.info.ID, Damaged: l.err.Error()}
		}
		p.Data = append(p.Data, l.info)
	}
	return p, nil
}

// List is Engine.List.
func (e *Reader) List(ctx context.Context, f weft.Filter) iter.Seq2[weft.Info, error] {
	return func(yield func(weft.Info, error) bool) {
		who := e.newRoster(mostTogether)
		for r := (weft.PageRequest{}); ; {
			found, p, err := e.page(ctx, f, r, who)
			if err != nil {
				yield(weft.Info{}, err)
				return
			}
			for _, l := range found {
				if err := e.Refused(); err != nil {
					yield(weft.Info{}, err)
					return
				}
				if !yield(l.info, l.err) {
					return
				}
			}
			if !p.HasMore {
				return
			}
			r.Cursor = p.Next
		}
	}
}

// Count is Engine.Count.
func (e *Reader) Count(ctx context.Context, f weft.Filter, most int) (n int, all bool, err error) {
	if most < 1 {
		return 0, false, fmt.Errorf("%w: Count: most is %d, at least 1", weft.ErrInvalid, most)
	}
	if err := errors.Join(e.Refused(), checkFilter(f)); err != nil {
		return 0, false, err
	}
	listed, err := e.listsComplete(ctx)
	if err != nil {
		return 0, false, err
	}
	lists, err := e.listsOf(ctx, f, cursor{Scan: !listed}, false)
	if err != nil {
		return 0, false, err
	}
	var (
		read     = 0
		who      = e.newRoster(0)
		onlyKeys = listed && exact(f)
	)
	for w := e.walk(lists, cursor{}, mostPage); ; {
		room := min(most-n, max(mostRows, most)-read)
		rows, err := w.take(ctx, min(max(room, 1), mostPage))
		if err == nil {
			err = e.Refused()
		}
		switch {
		case err != nil:
			return 0, false, err
		case len(rows) == 0:
			return n, true, nil
		case room <= 0:
			return n, false, nil
		case onlyKeys:
			n += len(rows)
			continue
		}
		read += len(rows)
		found, err := e.listedOf(ctx, f, rows, who)
		if err != nil {
			return 0, false, err
		}
		for _, l := range found {
			if l != nil {
				n++
			}
		}
	}
}

// A listing is one workflow of a page.
type listing struct {
	info weft.Info // if err is not nil, only the ID
	err  error     // what is damaged
}

// page reads one page. A workflow whose record is damaged is one of what it found.
func (e *Reader) page(ctx context.Context, f weft.Filter, r weft.PageRequest, who *roster) (found []listing, p weft.Page[weft.Info], _ error) {
	if err := errors.Join(e.Refused(), checkFilter(f)); err != nil {
		return nil, p, err
	}
	if r.Limit < 0 || r.Limit > mostPage {
		return nil, p, fmt.Errorf("%w: a page of %d workflows: Limit is 1 to %d, or 0 for %d", weft.ErrInvalid, r.Limit, mostPage, usualPage)
	}
	limit := cmp.Or(r.Limit, usualPage)
	at, err := e.begin(ctx, f, r)
	if err != nil {
		return nil, p, err
	}
	lists, err := e.listsOf(ctx, f, at, r.Ascending)
	if err != nil {
		return nil, p, err
	}
	p.Next = r.Cursor
	var outdated []*row
	defer func() { e.unlist(ctx, outdated) }()
	for w, read := e.walk(lists, at, limit+1), 0; ; {
		room := min(limit-len(found), mostRows-read)
		rows, err := w.take(ctx, max(room, 1))
		if err != nil {
			return nil, p, err
		}
		if len(rows) == 0 || room <= 0 {
			p.HasMore = len(rows) > 0
			if read > 0 {
				p.Next, err = at.seal(f, r.Ascending)
			}
			return found, p, err
		}
		read += len(rows)
		got, err := e.listedOf(ctx, f, rows, who)
		if err != nil {
			return nil, p, err
		}
		for i, row := range rows {
			if got[i] != nil {
				found = append(found, *got[i])
			}
			if row.outdated {
				outdated = append(outdated, row)
			}
			at = row.at
		}
	}
}

// mostLooks is how many records a page reads at once. On a server that takes hardly longer than one.
const mostLooks = 64

// listedOf returns what f selects of each of rows. It reads several at once.
func (e *Reader) listedOf(ctx context.Context, f weft.Filter, rows []*row, who *roster) ([]*listing, error) {
	found := make([]*listing, len(rows))
	return found, together(len(rows), func(i int) (err error) {
		found[i], err = e.listed(ctx, f, rows[i], who)
		return err
	})
}

// together calls look for 0 to n-1, several at once, until one fails. It returns the error of the first
// that failed.
func together(n int, look func(i int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	var failed atomic.Bool
	work := func() {
		for !failed.Load() {
			i := int(next.Add(1) - 1)
			if i >= n {
				return
			}
			if errs[i] = look(i); errs[i] != nil {
				failed.Store(true)
			}
		}
	}
	var others sync.WaitGroup
	for range min(mostLooks, n) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
	return cmp.Or(errs...)
}

// listed returns what f selects of a row: one workflow or none.
func (e *Reader) listed(ctx context.Context, f weft.Filter, row *row, who *roster) (*listing, error) {
	if err := e.Refused(); err != nil {
		return nil, err
	}
	wf, err := row.in.open(ctx, row)
	if record.Damaged(err) {
		return &listing{info: weft.Info{ID: row.id}, err: err}, nil
	}
	if err != nil || wf == nil {
		return nil, err
	}
	if !selectsRecord(f, wf) {
		return nil, nil
	}
	info, err := e.infoOf(ctx, wf, who)
	if err == nil && f.Attention && len(info.Attention) == 0 {
		return nil, nil
	}
	if err == nil {
		err = e.complete(ctx, &info, wf, who)
	}
	if record.Damaged(err) {
		return &listing{info: weft.Info{ID: wf.ID}, err: err}, nil
	}
	return &listing{info: info}, err
}

// selectsRecord reports whether f selects wf, apart from its Attention.
func selectsRecord(f weft.Filter, wf *journal.Workflow) bool {
	at := created(wf)
	if byStatus(f) {
		at = journal.Time(wf.Since())
	}
	parent := ""
	if wf.Parent != nil {
		parent = wf.Parent.ID
	}
	for name, value := range f.Labels {
		if had, ok := wf.Labels[name]; !ok || had != value {
			return false
		}
	}
	return (f.Workflow == "" || f.Workflow == wf.Type) &&
		(f.Status == "" || f.Status == wf.Status) &&
		(f.Parent == "" || f.Parent == parent) &&
		(!f.TopLevel || parent == "") &&
		(f.Deployment == "" || f.Deployment == wf.Deployment) &&
		(!f.NoNamespace || wf.Labels[namespace.Label] == "") &&
		strings.HasPrefix(wf.ID, f.IDPrefix) &&
		(f.After.IsZero() || !at.Before(f.After)) &&
		(f.Before.IsZero() || at.Before(f.Before))
}

// byStatus reports whether the list of f is in the order in which workflows came into their
// status. See weft.Filter.
func byStatus(f weft.Filter) bool {
	return f.IDPrefix == "" && f.Parent == "" && !f.Attention && (f.Workflow != "" || f.Status != "" || len(f.Labels) > 0)
}

// exact reports whether the lists that are read for f have exactly what f selects.
func exact(f weft.Filter) bool {
	if f.Attention || f.TopLevel || f.Deployment != "" || f.NoNamespace || f.IDPrefix != "" || len(f.Labels) > 1 {
		return false
	}
	if f.Parent != "" {
		return f.Workflow == "" && f.Status == "" && len(f.Labels) == 0
	}
	return len(f.Labels) == 0 || f.Workflow == ""
}

// checkFilter refuses a filter that no workflow can match.
func checkFilter(f weft.Filter) error {
	switch f.Status {
	case "", checkpoint.StatusPending, checkpoint.StatusRunning, checkpoint.StatusCompleted, checkpoint.StatusFailed, checkpoint.StatusCancelled:
	default:
		return payload.Invalid("status", string(f.Status), "is none of pending, running, completed, failed and cancelled")
	}
	if f.Deployment != "" {
		if err := payload.CheckName("deployment", f.Deployment, keys.MaxName); err != nil {
			return err
		}
	}
	if ns, ok := f.Labels[namespace.Label]; ok && f.NoNamespace {
		return payload.Invalid("filter", ns, "wants workflows of this namespace, and of none")
	}
	return payload.CheckFilter(f.Workflow, f.Parent, f.IDPrefix, f.Labels)
}

// A cursor is the place up to which a list was read.
type cursor struct {
	List  int    `cbor:"1,keyasint,omitempty"` // of several that are read one after the other
	Place []byte `cbor:"2,keyasint,omitempty"`

	// Scan: the lists were not complete when the first page was read, so the list of all
	// workflows is read instead.
	Scan bool `cbor:"3,keyasint,omitempty"`

	// Until is the time after that at which the first page was read, for an ascending list in the order in which
	// workflows came into their status. Those that came into it later are not in the list,
	// which would have them twice.
	Until int64 `cbor:"4,keyasint,omitempty"`
}

// begin returns the place at which the page r begins.
func (e *Reader) begin(ctx context.Context, f weft.Filter, r weft.PageRequest) (c cursor, err error) {
	if r.Cursor != "" {
		raw, err := base64.RawURLEncoding.DecodeString(r.Cursor)
		if err == nil {
			_, err = record.Open(purpose(f, r.Ascending), raw, journal.Version, &c)
		}
		if err != nil || c.List < 0 {
			return c, payload.Invalid("cursor", r.Cursor, "is not of a page with this filter and this order: begin again without it")
		}
		return c, nil
	}
	listed, err := e.listsComplete(ctx)
	c.Scan = !listed
	if r.Ascending && byStatus(f) {
		c.Until = journal.Micro(e.Now()) + 1 // what came into its status just now is there
	}
	return c, err
}

// seal encodes c for the filter f.
func (c cursor) seal(f weft.Filter, ascending bool) (string, error) {
	raw, err := record.Seal(purpose(f, ascending), journal.Version, &c, nil)
	return base64.RawURLEncoding.EncodeToString(raw), err
}

// purpose is what the checksum of a cursor covers beside the cursor itself.
func purpose(f weft.Filter, ascending bool) []byte {
	f.After, f.Before = f.After.Round(0).UTC(), f.Before.Round(0).UTC() // whatever their time zones
	raw, err := json.Marshal(struct {
		weft.Filter
		Ascending bool
	}{f, ascending})
	if err != nil { // a time after the year 9999
		raw = fmt.Appendf(nil, "%+v %v", f, ascending)
	}
	return raw
}

// earlier returns the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
