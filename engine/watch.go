package engine

import (
	"context"
	"time"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// listen has the poll look at once when others write what it looks for: wakes of
// runs that are driven here, and runs that nobody drives, in a line or not. It is a hint. What it
// misses is found within Config.PollInterval.
func (l *life) listen(ctx context.Context) {
	w, ok := storage.As[storage.Watcher](l.eng.store)
	if !ok {
		return
	}
	work := []storage.Range{keys.WakesOf(l.incarnation), keys.Todos()}
	for _, q := range l.eng.config.Queues {
		work = append(work, keys.LineOf(q.Name))
	}
	for _, r := range work {
		l.running.Go(func() { l.listenFor(ctx, w, r.Start) })
	}
}

// listenFor watches until ctx is done, and rests longer and longer when it fails.
func (l *life) listenFor(ctx context.Context, w storage.Watcher, prefix []byte) {
	for rest := time.Second; ; rest = min(2*rest, time.Minute) {
		began := time.Now()
		err := w.Watch(ctx, prefix, l.pokeNow)
		if ctx.Err() != nil {
			return
		}
		l.eng.log.Warn("weft: watch", "error", err)
		if time.Since(began) > time.Minute {
			rest = time.Second
		}
		if !backoff.Wait(ctx, rest) {
			return
		}
	}
}
