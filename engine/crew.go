package engine

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// A crew claims several runs at a time: claims share commits.
type crew struct {
	life *life
	busy sync.WaitGroup
	few  chan struct{}

	inHand sync.Map // the ids of the runs that are being claimed
}

// atOnce is how many claims are made at a time.
const atOnce = 64

func newCrew(l *life) *crew { return &crew{life: l, few: make(chan struct{}, atOnce)} }

// wait waits until nothing is being claimed.
func (c *crew) wait() { c.busy.Wait() }

// claim begins to claim p. It says no if there is no room: p will be found when there
// is.
func (c *crew) claim(ctx context.Context, p prospect) (bool, error) {
	coming, ok := c.life.eng.admit(false)
	if !ok {
		c.wait() // those before it may have come to nothing
		if coming, ok = c.life.eng.admit(true); !ok {
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
		defer p.ticket.giveBack()
		c.life.consider(ctx, p)
	})
	return true, nil
}

// adopt claims the workflows that a range of held or todo entries names and that
// owner, who is gone, owned, and which have waited for so long that they are this
// engine's to claim. p notes what it passes over. It returns how long the first of those
// that it leaves to other engines is still theirs. Several at a time: claims share commits.
func (l *life) adopt(ctx context.Context, r storage.Range, p *passage, owner, why string, waited func(entry []byte) (time.Duration, error)) (soonest time.Duration, _ error) {
	soonest = math.MaxInt64
	crew := newCrew(l)
	defer crew.wait()
	var doubles []prospect // of runs that other entries have in hand
	for entry, err := range storage.All(ctx, l.eng.store, r) {
		if err != nil {
			return soonest, err
		}
		if l.leavesAlone(entry.Key) {
			p.over(entry.Key)
			continue
		}
		p.stop()
		id, err := keys.ID(entry.Key)
		if err != nil {
			return soonest, err
		}
		if l.quarantine.has(id) {
			continue
		}
		past, err := waited(entry.Key)
		if err != nil {
			return soonest, err
		}
		if rest := l.leave(id, past); rest > 0 {
			soonest = min(soonest, rest)
			continue
		}
		p := prospect{id: id, entry: entry.Key, owner: owner, why: why}
		if _, inHand := crew.inHand.Load(id); inHand {
			doubles = append(doubles, p)
			continue
		}
		if ok, err := crew.claim(ctx, p); !ok {
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
