package retention

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/admin"
	"github.com/weft-go/weft/internal/inspect"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/reads"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/storage"
)

// actor is who removes what is older than its retention, for the log.
var actor = weft.Actor{Name: "retention", Reason: "older than its retention"}

const (
	mostReads    = 64        // workflows that are read at once
	mostArchived = 16        // workflows that are archived at once
	mostOps      = 1000      // operations and conditions of a commit, unless a workflow has more
	mostBytes    = 256 << 10 // of its keys and values
)

// remove carries out decisions.
func (k *keeper) remove(ctx context.Context, rs []*admin.Removal) error {
	for len(rs) > 0 {
		n := together(rs, min(mostOps, k.MaxOps))
		if err := k.commit(ctx, rs[:n]); err != nil {
			return err
		}
		rs = rs[n:]
	}
	return nil
}

// together returns how many of the first decisions go into one commit.
func together(rs []*admin.Removal, most int) (n int) {
	ops, bytes := 0, 0
	for _, r := range rs {
		size := r.Batch.Size()
		ops += len(r.Batch.If) + len(r.Batch.Ops)
		bytes += size.Bytes
		if n > 0 && (ops > most || bytes > mostBytes) {
			break
		}
		n++
	}
	return n
}

// commit removes several workflows. If one of them has changed, the others are removed one by one:
// it is judged anew when the list begins again.
func (k *keeper) commit(ctx context.Context, rs []*admin.Removal) error {
	err := k.Remove(ctx, rs...)
	switch {
	case err == nil:
		for _, r := range rs {
			err = cmp.Or(err, k.Removed(ctx, r, actor))
		}
		return err
	case !errors.Is(err, storage.ErrConflict) && !errors.Is(err, storage.ErrInvalidBatch):
		return err
	case len(rs) == 1:
		return nil
	}
	for _, r := range rs {
		if err := k.commit(ctx, []*admin.Removal{r}); err != nil {
			return err
		}
	}
	return nil
}

// decideAll decides for each of some entries whether its workflow is removed. It decides several
// at once: on a server, the reads of many share round trips. It returns an error if it could not read
// several in a row.
func (k *keeper) decideAll(ctx context.Context, l *list, entries []storage.Entry, now time.Time, unarchived *refusals) (decided []*admin.Removal, _ error) {
	all, errs := make([]*admin.Removal, len(entries)), make([]error, len(entries))
	most := mostReads
	if k.Archive != nil {
		most = mostArchived
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(most, len(entries)) {
		wg.Go(func() {
			for i := int(next.Add(1) - 1); i < len(entries) && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				all[i], errs[i] = k.decide(ctx, l, entries[i], now, unarchived)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var failures reads.Failures
	var several error
	for i, r := range all {
		if failures.End(ctx, entries[i].Key, errs[i]) {
			several = failures.First
		}
		switch {
		case errs[i] != nil: // it is tried again when the list begins again
			id, _ := journal.OpenRow(entries[i]) // it can be read: decide has looked behind it
			unarchived.add(&inspect.ArchiveError{ID: id, Cause: errs[i]})
		case r != nil:
			decided = append(decided, r)
		}
	}
	return decided, several
}

// decide decides whether the workflow of an entry is removed. It returns nil if it stays, for now.
func (k *keeper) decide(ctx context.Context, l *list, entry storage.Entry, now time.Time, unarchived *refusals) (*admin.Removal, error) {
	id, err := journal.OpenRow(entry)
	if err != nil {
		return nil, nil // damaged: whoever reads the list says so
	}
	wf, err := journal.Load(ctx, k.Store, id)
	switch {
	case errors.Is(err, storage.ErrNotFound), record.Damaged(err):
		return nil, nil
	case err != nil:
		return nil, err
	case !old(wf, entry.Key, l.kept, now):
		return nil, nil
	}
	has, err := journal.FeaturesOf(ctx, k.Store, wf)
	remembers := false
	if err == nil && has.Signals {
		remembers, err = acceptance.Remembers(ctx, k.Store, id, now)
	}
	if !remembers && err == nil && has.Updates {
		remembers, err = acceptance.RemembersAnswers(ctx, k.Store, id, journal.Time(wf.EndedAt), now, k.SignalIDRetention)
	}
	switch {
	case remembers, record.Damaged(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	r, err := k.Removing(ctx, wf, has, weft.RemovedByRetention)
	if err == nil {
		return r, nil
	}
	if refused, ok := errors.AsType[*inspect.ArchiveError](err); ok {
		unarchived.add(refused)
		return nil, nil
	}
	if errors.Is(err, weft.ErrProtected) || errors.Is(err, weft.ErrNotFound) {
		return nil, nil
	}
	err = run.Outdated(ctx, k.Store, wf, err)
	if record.Damaged(err) {
		unarchived.add(&inspect.ArchiveError{ID: id, Cause: err})
		return nil, nil
	}
	return nil, err
}

// old reports whether wf, which an entry of a list names, has ended long enough ago, and may be
// removed by this release.
func old(wf *journal.Workflow, entry []byte, kept time.Duration, now time.Time) bool {
	return wf.Listed(entry) && wf.Status.Terminal() && wf.Protected == nil && wf.Unmet() == "" &&
		!journal.Time(wf.Since()).Add(kept).After(now)
}

// refusals are the workflows that were not archived in a look.
type refusals struct {
	mu    lock.Mutex
	n     int
	first *inspect.ArchiveError
}

func (r *refusals) add(err *inspect.ArchiveError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n++; r.first == nil {
		r.first = err
	}
}

func (r *refusals) log(log *slog.Logger) {
	if r.n > 0 {
		log.Warn("weft: workflows older than their retention were not archived, or cannot be read, and stay; trying again within an hour", "count", r.n, "workflow", r.first.ID, "error", r.first.Cause)
	}
}
