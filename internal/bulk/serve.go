package bulk

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/inspect"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/namespace"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/worker"
	"github.com/weft-go/weft/storage"
)

const (
	mostAtOnce = 10              // bulks of the host, or of one namespace, that an engine carries out at the same time
	longPage   = 5 * time.Second // how long a page takes at most, unless one operation takes longer
	pause      = time.Minute     // after the store has failed, and between looks when there is nothing to do
	gone       = 100             // records that are removed in one commit
)

// Duty returns the duty to carry out bulk operations.
func (s *Bulks) Duty() worker.Duty {
	return worker.Duty{Name: "bulk operations", Begin: func(l *worker.Incarnation) func(context.Context) (time.Duration, error) {
		v := &server{Bulks: s, incarnation: l, serving: map[string]bool{}, of: map[string]int{}, failed: map[string]time.Time{}}
		return func(ctx context.Context) (time.Duration, error) {
			return s.PollInterval, v.look(ctx)
		}
	}}
}

// A server is the duty of one incarnation. It carries out each bulk in a goroutine, because that takes time
// and the poll must go on.
//
// It reads the records of all bulks only rarely, because those that have ended are kept, and at once if a bulk was
// started through this engine, or after Engine.Poke. In between it reads those that go on.
type server struct {
	*Bulks
	incarnation *worker.Incarnation
	open        map[string]bool // ids of bulks that go on
	last        time.Time       // when all were read; zero: that has failed
	kept        string          // the key of the last of several in a row that could not be forgotten; "": there were none

	mu      lock.Mutex           // guards the fields below
	serving map[string]bool      // ids of bulks that this engine carries out
	of      map[string]int       // how many of them each namespace has; "" is the host
	failed  map[string]time.Time // when the store has failed for a bulk
}

// look begins to carry out the bulks that no engine carries out, and removes those that ended long ago. What cannot be removed
// holds up none of them. If several in a row cannot, it removes no others, and the next look goes on behind them.
func (v *server) look(ctx context.Context) error {
	rarely := min(saturate.Times(run.Rarely, v.PollInterval), max(v.PollInterval, pause))
	if news := v.news.Swap(false); !news && time.Since(v.last) < rarely {
		return v.goOn(ctx)
	}
	v.last = time.Time{}
	now, known := v.incarnation.Certain()
	open := map[string]bool{}
	behind := v.kept
	v.kept = ""
	var failures reads.Failures
	for e, err := range storage.All(ctx, v.Store, keys.Bulks()) {
		if err != nil {
			return err
		}
		r, err := Open(e)
		switch {
		case record.Damaged(err):
			continue // whoever lists it says so
		case err != nil:
			return err
		case r.ended() && known && now.After(journal.Time(r.EndedAt).Add(v.TombstoneRetention)):
			if at := string(e.Key); v.kept == "" && at > behind && failures.End(ctx, e.Key, v.forget(ctx, r)) {
				v.kept = at
			}
		case !r.ended():
			open[r.ID] = true
			v.consider(ctx, r)
		}
	}
	v.open, v.last = open, time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.failed, func(id string, _ time.Time) bool { return !open[id] }) // another engine has ended it
	return failures.First
}

// goOn begins to carry out those of the open bulks that no engine carries out.
func (v *server) goOn(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(v.open)) { // in the same order each time, as those that are listed
		r, err := Load(ctx, v.Store, id)
		switch {
		case errors.Is(err, weft.ErrNotFound), record.Damaged(err), err == nil && r.ended():
			delete(v.open, id)
			continue
		case err != nil:
			return err
		}
		v.consider(ctx, r)
	}
	return nil
}

// forget removes a bulk with all that belongs to it.
func (v *server) forget(ctx context.Context, r *Record) error {
	b := storage.Batch{If: []storage.Condition{r.unchanged()}}
	for e, err := range storage.All(ctx, v.Store, keys.BulkRefusalsOf(r.ID)) {
		if err != nil {
			return err
		}
		if b.Ops = append(b.Ops, storage.Delete(e.Key)); len(b.Ops) == gone {
			if again, err := v.forgotten(ctx, b); again || err != nil {
				return err
			}
			b.Ops = nil
		}
	}
	b.Ops = append(b.Ops, storage.Delete(keys.Bulk(r.ID)))
	_, err := v.forgotten(ctx, b)
	return err
}

// forgotten commits a part of forget. It reports whether another bulk has the id now, or another engine was
// faster.
func (v *server) forgotten(ctx context.Context, b storage.Batch) (changed bool, _ error) {
	err := v.Store.Commit(ctx, b)
	if errors.Is(err, storage.ErrConflict) {
		return true, nil
	}
	return false, err
}

// consider begins to carry out r, unless another engine does, or there is a reason to wait.
func (v *server) consider(ctx context.Context, r *Record) {
	v.mu.Lock()
	waits := v.serving[r.ID] || v.of[namespaceOf(r.ID)] >= mostAtOnce || time.Since(v.failed[r.ID]) < v.Pause
	v.mu.Unlock()
	if waits {
		return
	}
	if r.Engine != "" && r.Engine != v.incarnation.Name() {
		gone, err := v.incarnation.Gone(ctx, r.Engine) // the record of that engine may be damaged
		v.pause(ctx, r, err)
		if !gone || err != nil {
			return
		}
	}
	v.note(r.ID, true)
	begun := v.incarnation.Go(func() {
		v.pause(ctx, r, v.serve(ctx, r))
		v.note(r.ID, false)
		v.incarnation.PokeNow()
	})
	if !begun {
		v.note(r.ID, false)
	}
}

// pause has this engine leave r for a while if there is an error.
func (v *server) pause(ctx context.Context, r *Record, err error) {
	failed := err != nil && ctx.Err() == nil
	v.mu.Lock()
	delete(v.failed, r.ID)
	if failed {
		v.failed[r.ID] = time.Now()
	}
	v.mu.Unlock()
	if failed {
		v.Log.Warn("weft: a bulk could not go on; trying again in a minute", "bulk", r.ID, "error", err)
	}
}

// note notes whether this engine carries out a bulk.
func (v *server) note(id string, serves bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	of := namespaceOf(id)
	if serves {
		v.serving[id] = true
		v.of[of]++
		return
	}
	delete(v.serving, id)
	if v.of[of]--; v.of[of] == 0 {
		delete(v.of, of)
	}
}

// namespaceOf returns the namespace of the bulk with an id; "" is the host. No namespace keeps those of another one
// from being carried out.
func namespaceOf(id string) string {
	name, _, _ := namespace.Split(id)
	return name
}

// outcomes are those of a page, as far as it was dealt with.
type outcomes struct {
	done    int64
	refused []Refusal
	last    string
}

// errChanged means that the record of a bulk is not what this engine has written: the bulk was stopped, or
// another engine carries it out.
var errChanged = errors.New("engine: another has changed the bulk")

// serve carries out r until it has ended or another engine does so.
func (v *server) serve(ctx context.Context, r *Record) error {
	p := &pace{interval: r.interval()}
	if len(r.Page) > 0 { // nobody knows when an operation of this page was begun last
		p.last = time.Now()
	}
	if r.Engine != v.incarnation.Name() {
		next := *r
		next.Engine = v.incarnation.Name()
		if again, err := v.commit(ctx, r, &next, nil); again || err != nil {
			return err
		}
		r = &next
	}
	for !r.ended() {
		o, err := v.page(ctx, r, p)
		if errors.Is(err, errChanged) {
			return v.count(ctx, r, o)
		}
		if err != nil {
			return err
		}
		next := *r
		ops, err := next.note(o)
		if err != nil {
			return err
		}
		if err := v.turn(ctx, r, &next); err != nil {
			return err
		}
		again, err := v.commit(ctx, r, &next, ops)
		if err != nil {
			return err
		}
		if again {
			return v.count(ctx, r, o)
		}
		r = &next
	}
	v.Log.Info("weft: a bulk has ended", "bulk", r.ID, "do", r.Do, "done", r.Done, "refused", r.Refused)
	return nil
}

// turn reads the page behind that of r into next, or ends next if there is none.
func (v *server) turn(ctx context.Context, r, next *Record) error {
	next.Page = nil
	if r.Begun && !r.Rest {
		next.end(v.Now())
		return nil
	}
	applies := func(ctx context.Context, wf *journal.Workflow) (bool, error) { return v.applies(ctx, r, wf) }
	fits, place, more, err := v.Reader.Fitting(ctx, r.Filter.filter(), r.began(), r.place(), r.size(v.MostPage), applies)
	if err != nil {
		return err
	}
	next.Begun, next.Behind, next.Scan, next.Rest = true, place.Behind, place.Scan, more
	for _, f := range fits {
		next.Page = append(next.Page, memberOf(f))
	}
	if len(fits) == 0 && !more {
		next.end(v.Now())
	}
	return nil
}

func memberOf(f inspect.Fit) Member {
	m := Member{ID: f.ID, Generation: f.Generation, Life: f.Life, TakenUp: f.TakenUp, Held: f.Held}
	if f.Err != nil {
		m.Damage = reason(f.Err)
	}
	return m
}

// size returns how many workflows a page of r has, at most n.
func (r *Record) size(n int) int {
	i := r.interval()
	if i == 0 {
		return n
	}
	return min(n, int(max(1, longPage/i)))
}

// page does the operation of r to the workflows of its page. After an error other than errChanged the page
// is repeated.
func (v *server) page(ctx context.Context, r *Record, p *pace) (o outcomes, _ error) {
	for _, m := range r.Page {
		if err := p.wait(ctx, func() error { return v.still(ctx, r) }); err != nil {
			return o, err
		}
		err := v.operate(ctx, r, m)
		switch {
		case err == nil:
			o.done++
		case refuses(ctx, err):
			o.refused = append(o.refused, Refusal{m.ID, reason(err)})
		default:
			return o, err
		}
		o.last = m.ID
	}
	return o, nil
}

// still returns errChanged unless the stored record is r.
func (v *server) still(ctx context.Context, r *Record) error {
	raw, err := v.Store.Get(ctx, keys.Bulk(r.ID))
	if errors.Is(err, storage.ErrNotFound) || err == nil && !bytes.Equal(raw, r.raw) {
		return errChanged
	}
	return err
}

// count adds to r, if it was stopped, what was done of its page until then. The stop may have come after a commit of unknown
// outcome that has added it.
func (v *server) count(ctx context.Context, r *Record, o outcomes) error {
	for range settle.MostTries {
		there, err := Load(ctx, v.Store, r.ID)
		if errors.Is(err, weft.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if o.last == "" || there.Stopped == nil || there.At != r.At || there.Engine != r.Engine || there.counted() != r.counted() {
			return nil
		}
		next := *there
		ops, err := next.note(o)
		if err != nil {
			return err
		}
		if again, err := v.commit(ctx, there, &next, ops); !again {
			return err
		}
	}
	return settle.Contradiction(keys.Bulk(r.ID))
}

// A pace has operations begin at even intervals at most.
type pace struct {
	interval time.Duration
	last     time.Time // when one has begun last; zero: none has
}

// wait waits until the next operation may begin. It returns the error of still, which it calls before that and
// once a minute.
func (p *pace) wait(ctx context.Context, still func() error) error {
	for {
		rest := time.Duration(0)
		if !p.last.IsZero() {
			rest = time.Until(p.last.Add(p.interval))
		}
		if rest > 0 && !backoff.Sleep(ctx, min(rest, pause)) {
			return context.Cause(ctx)
		}
		if err := still(); err != nil {
			return err
		}
		if rest <= pause {
			p.last = time.Now()
			return nil
		}
	}
}
