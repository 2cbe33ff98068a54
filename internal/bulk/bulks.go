package bulk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/admin"
	"github.com/weft-go/weft/internal/inspect"
	"github.com/weft-go/weft/internal/intake"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// Bulks has the bulk operations of a store.
type Bulks struct {
	*intake.Intake
	Admin  *admin.Admin
	Reader *inspect.Reader

	MostPage int           // workflows of a page
	Pause    time.Duration // of a bulk, after the store has failed

	news atomic.Bool // a bulk may have been written: the duty is to look
}

// New returns the bulk operations of the store of in, a and r.
func New(in *intake.Intake, a *admin.Admin, r *inspect.Reader) *Bulks {
	return &Bulks{Intake: in, Admin: a, Reader: r, MostPage: 100, Pause: pause}
}

// Tell has the duty look at once, because a bulk may have been written, and pokes the poll.
func (s *Bulks) Tell() {
	s.news.Store(true)
	s.PokePoll()
}

// Start is Engine.StartBulk.
func (s *Bulks) Start(ctx context.Context, id string, b weft.Bulk, by weft.Actor) error {
	call := waiting.New(ctx, "start of bulk", id)
	r, err := s.recordOf(call, id, b, by)
	if err != nil {
		return err
	}
	err = call.Explain(s.start(call, r))
	s.Tell() // also after an error: the outcome may be unknown
	return err
}

func (s *Bulks) start(ctx context.Context, r *Record) error {
	for range settle.MostTries {
		there, err := s.load(ctx, r.ID)
		switch {
		case err == nil && there.same(r):
			again, err := s.rest(ctx, there)
			if again {
				continue
			}
			return err
		case err == nil:
			return fmt.Errorf("%w: bulk %q: another bulk, which began at %s, has this id", weft.ErrMismatch, r.ID, there.began().UTC().Format(time.RFC3339))
		case !errors.Is(err, weft.ErrNotFound):
			return err
		}
		again, err := s.commit(ctx, &Record{ID: r.ID}, r, nil)
		if again {
			continue
		}
		if err == nil && !s.Staged { // the host may roll back
			s.Log.Info("weft: operator has started a bulk", "bulk", r.ID, "do", r.Do, "by", r.By, "why", r.Why)
		}
		return err
	}
	return settle.Contradiction(keys.Bulk(r.ID))
}

// Stop is Engine.StopBulk.
func (s *Bulks) Stop(ctx context.Context, id string, by weft.Actor) error {
	call := waiting.New(ctx, "stop of bulk", id)
	if err := errors.Join(admin.CheckActor(by), checkID(id)); err != nil {
		return err
	}
	return call.Explain(s.stop(call, id, by))
}

func (s *Bulks) stop(ctx context.Context, id string, by weft.Actor) error {
	for range settle.MostTries {
		r, err := s.load(ctx, id)
		if err != nil {
			return err
		}
		if r.ended() {
			again, err := s.rest(ctx, r)
			if again {
				continue
			}
			return err
		}
		next := *r
		next.Stopped = &Stop{by.Name, by.Reason}
		next.end(s.Now())
		again, err := s.commit(ctx, r, &next, nil)
		if again {
			continue
		}
		if err == nil && !s.Staged {
			s.Log.Info("weft: operator has stopped a bulk", "bulk", id, "by", by.Name, "why", by.Reason)
		}
		return err
	}
	return settle.Contradiction(keys.Bulk(id))
}

func (s *Bulks) load(ctx context.Context, id string) (*Record, error) {
	if err := errors.Join(s.Refused(), ctx.Err()); err != nil {
		return nil, err
	}
	return Load(ctx, s.Store, id)
}

// commit replaces r by next, together with also. It reports whether to decide again, because something
// has changed meanwhile.
func (s *Bulks) commit(ctx context.Context, r, next *Record, also []storage.Op) (again bool, _ error) {
	written, b, err := r.replace(next)
	if err != nil {
		return false, err
	}
	b.Ops = append(b.Ops, also...)
	unsure := func(err error) {
		s.Log.Warn("weft: outcome of a change of a bulk is unknown; trying again", "bulk", r.ID, "error", err)
	}
	err = settle.Commit(ctx, s.Store, b, unsure, func(ctx context.Context) (bool, error) {
		there, err := Load(ctx, s.Store, r.ID)
		if errors.Is(err, weft.ErrNotFound) {
			return false, nil
		}
		return err == nil && bytes.Equal(there.Token, written.Token), err
	})
	switch {
	case errors.Is(err, storage.ErrConflict):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("engine: bulk %q: %w", r.ID, err)
	}
	*next = *written
	return false, nil
}

// rest has a transaction of the host depend on r, if nothing is to be written as long as the record is this one. It
// reports whether to decide again.
func (s *Bulks) rest(ctx context.Context, r *Record) (again bool, _ error) {
	if !s.Staged {
		return false, nil
	}
	err := s.Store.Commit(ctx, storage.Batch{If: []storage.Condition{r.unchanged()}})
	if errors.Is(err, storage.ErrConflict) {
		return true, nil
	}
	return false, err
}

func checkID(id string) error { return payload.CheckName("bulk id", id, weft.MaxBulkID) }

// maxPayload is the maximum size in bytes of the encoded payload of a bulk's signal: its record is written anew
// with each page.
const maxPayload = 64 << 10

// recordOf checks b and returns the record that describes it.
func (s *Bulks) recordOf(ctx context.Context, id string, b weft.Bulk, by weft.Actor) (*Record, error) {
	if err := errors.Join(admin.CheckActor(by), checkID(id), s.Refused()); err != nil {
		return nil, err
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: bulk %q: %s", weft.ErrInvalid, id, fmt.Sprintf(format, args...))
	}
	switch b.Do {
	case weft.BulkCancel, weft.BulkTerminate, weft.BulkSignal, weft.BulkResume, weft.BulkReset, weft.BulkPurge, weft.BulkDelete, weft.BulkProtect, weft.BulkUnprotect:
	case "":
		return nil, wrong("it has no Do")
	default:
		return nil, wrong("its Do is unknown: %q", string(b.Do))
	}
	if err := inspect.CheckFilter(b.Filter); err != nil {
		return nil, wrong("its Filter: %s", payload.Why(err))
	}
	switch m := b.Signal; {
	case SelectsEverything(b.Filter):
		return nil, wrong("its Filter selects everything: set its Before if that is meant")
	case b.Before != "" && b.Do != weft.BulkReset:
		return nil, wrong("it has Before %q, which is for BulkReset", b.Before)
	case b.Do != weft.BulkSignal && !reflect.DeepEqual(m, signal.Message{}):
		return nil, wrong("it has a Signal, which is for BulkSignal")
	case m.WorkflowID != "" || m.Start != nil || m.Token != nil:
		return nil, wrong("its Signal has a WorkflowID, Start or Token: the Filter says to whom it is sent")
	case b.Rate.Count < 0 || b.Rate.Per < 0:
		return nil, wrong("its Rate is negative")
	case (b.Rate.Count == 0) != (b.Rate.Per == 0):
		return nil, wrong("its Rate needs a Count and a Per")
	case b.Rate.Per%time.Microsecond != 0:
		return nil, wrong("the Per of its Rate is not in whole microseconds: %v", b.Rate.Per)
	}
	for _, t := range []time.Time{b.Filter.After, b.Filter.Before} {
		if !t.IsZero() && (t.Year() < 1970 || t.Year() > 2200) {
			return nil, wrong("the After or Before of its Filter is %v, and must be from 1970 to 2200", t)
		}
	}
	r := &Record{
		ID: id, Do: b.Do, Before: b.Before, Filter: filterOf(b.Filter), Count: b.Rate.Count, Per: b.Rate.Per.Microseconds(),
		By: by.Name, Why: by.Reason, At: journal.Micro(s.Now()),
	}
	if err := admin.CheckActor(r.actor()); err != nil {
		return nil, wrong("its Reason leaves no room for the id of the bulk: %s", payload.Why(err))
	}
	if b.Do == weft.BulkReset {
		if err := admin.CheckOperation(b.Before); err != nil {
			return nil, wrong("its Before: %s", payload.Why(err))
		}
	}
	if b.Do == weft.BulkSignal {
		m := b.Signal
		m.WorkflowID = "-"
		own := m.ID == nil
		if own {
			made := "bulk_" + s.NewID()
			m.ID = &made
		}
		in, err := s.FromOutside(ctx, m)
		if err != nil {
			return nil, err
		}
		if len(in.Data) > maxPayload {
			return nil, payload.Invalid("payload of the signal of bulk", id, fmt.Sprintf("has %d bytes, at most %d", len(in.Data), maxPayload))
		}
		r.Signal = &Signal{
			Name: in.Name, ID: in.ID, Own: own, Codec: in.Codec, Data: in.Data, Digest: in.Digest.Plain, Canonical: in.Digest.Canonical,
			Memory: in.Memory.Microseconds(),
		}
	}
	return r, nil
}

// Info is Engine.Bulk.
func (s *Bulks) Info(ctx context.Context, id string) (weft.BulkInfo, error) {
	r, err := s.load(ctx, id)
	if err != nil {
		return weft.BulkInfo{}, err
	}
	return s.withRefusals(ctx, r)
}

// All is Engine.Bulks.
func (s *Bulks) All(ctx context.Context) iter.Seq2[weft.BulkInfo, error] {
	return func(yield func(weft.BulkInfo, error) bool) {
		if err := s.Refused(); err != nil {
			yield(weft.BulkInfo{}, err)
			return
		}
		for e, err := range storage.All(ctx, s.Store, keys.Bulks()) {
			if err != nil {
				yield(weft.BulkInfo{}, err)
				return
			}
			i, err := s.infoOf(ctx, e)
			if err != nil && !record.Damaged(err) {
				yield(weft.BulkInfo{}, err)
				return
			}
			if !yield(i, err) {
				return
			}
		}
	}
}

// infoOf returns the state of the bulk of an entry.
func (s *Bulks) infoOf(ctx context.Context, e storage.Entry) (weft.BulkInfo, error) {
	r, err := Open(e)
	if err != nil {
		id, _ := keys.Last(e.Key)
		return weft.BulkInfo{ID: id}, err
	}
	return s.withRefusals(ctx, r)
}

// withRefusals returns the state of r with what was refused.
func (s *Bulks) withRefusals(ctx context.Context, r *Record) (weft.BulkInfo, error) {
	i := r.Info()
	for e, err := range storage.All(ctx, s.Store, keys.BulkRefusalsOf(r.ID)) {
		if err != nil {
			return weft.BulkInfo{}, err
		}
		list, err := OpenRefusals(e)
		if err != nil {
			return weft.BulkInfo{ID: r.ID}, err
		}
		for _, x := range list {
			i.Refusals = append(i.Refusals, weft.Refusal{ID: x.ID, Reason: x.Why})
		}
	}
	return i, nil
}
