package retention

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/admin"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/internal/worker"
)

// Duty returns the duty to remove what is older than its retention.
func Duty(a *admin.Admin) worker.Duty {
	return worker.Duty{Name: "retention", Begin: func(l *worker.Incarnation) func(context.Context) (time.Duration, error) {
		k := newKeeper(a, l)
		return func(ctx context.Context) (time.Duration, error) {
			k.look(ctx)
			return a.PollInterval, nil
		}
	}}
}

const (
	mostLooked = 2000             // maximum number of entries in one look
	aJump      = time.Minute      // of the wall clock, after which it is not believed for a while
	mistrust   = 10 * time.Minute // that while
	anew       = time.Hour        // after which a list is looked at from its beginning again
	pause      = time.Minute      // after the store has failed
	polite     = 9                // while this engine executes runs, a rest of so many times what the work took
	patience   = time.Hour        // what is overdue for longer is removed without rests
)

// A keeper is the duty of one incarnation. It looks in a goroutine, because archiving takes time
// and the poll must go on. Only that goroutine uses the lists while busy is set, and otherwise only
// the poll.
type keeper struct {
	*admin.Admin
	incarnation *worker.Incarnation
	lists       []*list
	busy        atomic.Bool
	failed      time.Time // when the store failed last

	read   journal.Reading // the clocks at the last look
	jumped time.Time       // when the wall clock jumped last; zero: it has not
}

func newKeeper(a *admin.Admin, l *worker.Incarnation) *keeper {
	k := &keeper{Admin: a, incarnation: l, read: a.Read()}
	for _, name := range a.Types() {
		kept := a.Workflows[name].Kept.Or(a.Retention)
		for _, s := range []checkpoint.Status{checkpoint.StatusCompleted, checkpoint.StatusFailed, checkpoint.StatusCancelled} {
			if d := kept.After(s); d > 0 {
				k.lists = append(k.lists, &list{workflow: name, status: s, kept: d})
			}
		}
	}
	return k
}

// look goes on with the lists that have something to remove. One engine does so for each type, as
// far as engines have the same workflows.
func (k *keeper) look(ctx context.Context) {
	if k.mistrusts() || k.busy.Load() || !k.failed.IsZero() && time.Since(k.failed) < pause {
		return
	}
	now, ok := k.incarnation.Certain()
	if !ok {
		return
	}
	var due []*list
	for _, l := range k.lists {
		if l.isDue(now) && k.incarnation.First("retention of "+l.workflow) {
			due = append(due, l)
		}
	}
	if len(due) == 0 {
		return
	}
	slices.SortStableFunc(due, func(a, b *list) int { return a.looked.Compare(b.looked) })
	k.busy.Store(true)
	begun := k.incarnation.Go(func() {
		defer k.busy.Store(false)
		k.pass(ctx, now, due)
	})
	if !begun {
		k.busy.Store(false)
	}
}

// mistrusts reports whether the wall clock has jumped too lately. What is removed by a wrong clock
// does not come back.
func (k *keeper) mistrusts() bool {
	was := k.read
	k.read = k.Read()
	drift := saturate.Sub(k.read.Wall.Sub(was.Wall), k.read.Mono.Sub(was.Mono))
	if drift.Abs() >= aJump {
		k.jumped = k.read.Mono
		k.Log.Warn("weft: the clock has jumped; for a while nothing is removed that is older than its retention", "by", drift)
	}
	return !k.jumped.IsZero() && k.read.Mono.Sub(k.jumped) < mistrust
}

// pass goes on with lists in turns, at most mostLooked entries in all, and has the poll look again if
// there is more.
func (k *keeper) pass(ctx context.Context, now time.Time, lists []*list) {
	left := mostLooked
	var unarchived refusals
	defer unarchived.log(k.Log)
	for left > 0 && len(lists) > 0 {
		l := lists[0]
		lists = lists[1:]
		if !l.isDue(now) {
			continue
		}
		lists = append(lists, l)
		began := time.Now()
		n, overdue, err := k.goOn(ctx, l, now, left, &unarchived)
		if n > 0 && k.InMemory() > 0 && overdue <= patience {
			backoff.Wait(ctx, saturate.Times(polite, time.Since(began)))
		}
		if err != nil {
			if ctx.Err() == nil {
				k.failed = time.Now()
				k.Log.Warn("weft: workflows older than their retention were not removed; trying again in a minute", "type", l.workflow, "error", err)
			}
			return
		}
		left -= n
	}
	if left == 0 {
		k.incarnation.PokeNow() // after the other duties
	}
}
