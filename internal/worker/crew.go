package worker

import (
	"context"
	"iter"
	"math"
	"sync"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/trail"
	"github.com/weft-go/weft/storage"
)

// A crew claims several runs concurrently, so that their claims share commits.
type crew struct {
	incarnation *Incarnation
	busy        sync.WaitGroup
	few         chan struct{}

	inHand sync.Map // the ids of the runs that are being claimed
}

// atOnce is the maximum number of concurrent claims of a crew.
const atOnce = 64

func newCrew(l *Incarnation) *crew { return &crew{incarnation: l, few: make(chan struct{}, atOnce)} }

// wait waits until no claim is in progress.
func (c *crew) wait() { c.busy.Wait() }

// claim starts to claim p in the background. It returns false if there is no room in memory; a later look finds p again.
func (c *crew) claim(ctx context.Context, p prospect) (bool, error) {
	coming, ok := c.incarnation.Worker.admit(false)
	if !ok {
		c.wait() // earlier claims may fail and free their room
		if coming, ok = c.incarnation.Worker.admit(true); !ok {
			return false, nil
		}
	}
	select {
	case c.few <- struct{}{}:
	case <-ctx.Done():
		coming()
		return false, ctx.Err()
	}
	c.inHand.Store(p.id, nil)
	c.busy.Go(func() {
		defer func() { <-c.few }()
		defer c.inHand.Delete(p.id)
		defer coming()
		defer p.ticket.GiveBack()
		c.incarnation.consider(ctx, p)
	})
	return true, nil
}

// claimableIn returns the workflows of a range of entries that this engine may execute. It
// records in p the entries that it skips.
func (l *Incarnation) claimableIn(ctx context.Context, r storage.Range, p *trail.Passage) iter.Seq2[prospect, error] {
	return func(yield func(prospect, error) bool) {
		for entry, err := range storage.All(ctx, l.Worker.Store, r) {
			if err != nil {
				yield(prospect{}, err)
				return
			}
			id, err := keys.ID(entry.Key)
			if err != nil {
				l.Unreadable(entry.Key, err)
			}
			if err != nil || l.left.Has(entry.Key) {
				p.Over(entry.Key)
				continue
			}
			p.Stop()
			if !yield(prospect{id: id, entry: entry.Key}, nil) {
				return
			}
		}
	}
}

// adopt claims the workflows of a range of held or todo entries. They belong to owner, which is gone, or to nobody if owner
// is "". It leaves a run to other engines until it has waited long enough: see leaveToOthers. It returns the time until the
// first of these is due for this engine. It records in p the entries that it skips.
func (l *Incarnation) adopt(ctx context.Context, r storage.Range, p *trail.Passage, owner, why string, waited func(entry []byte) (time.Duration, error)) (soonest time.Duration, _ error) {
	soonest = math.MaxInt64
	crew := newCrew(l)
	defer crew.wait()
	var doubles []prospect // second entries of runs that are being claimed
	for found, err := range l.claimableIn(ctx, r, p) {
		if err != nil {
			return soonest, err
		}
		if l.quarantine.has(found.id) {
			continue
		}
		past, err := waited(found.entry)
		if err != nil {
			l.Unreadable(found.entry, err)
			continue
		}
		if rest := l.leaveToOthers(found.id, past); rest > 0 {
			soonest = min(soonest, rest)
			continue
		}
		found.owner, found.why = owner, why
		if _, inHand := crew.inHand.Load(found.id); inHand {
			doubles = append(doubles, found)
			continue
		}
		if ok, err := crew.claim(ctx, found); !ok {
			return soonest, err
		}
	}
	crew.wait()
	for _, p := range doubles {
		if ok, err := crew.claim(ctx, p); !ok {
			return soonest, err
		}
	}
	return soonest, nil
}
