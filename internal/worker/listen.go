package worker

import (
	"context"
	"time"

	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

// listen has the poll look immediately when others write what it looks for: wakes of this incarnation's runs, and runs
// without an owner, in a line or not. This is only a hint: the poll finds what listen misses within Config.PollInterval.
func (l *Incarnation) listen(ctx context.Context) {
	w, ok := storage.As[storage.Watcher](l.Worker.Store)
	if !ok {
		return
	}
	work := []storage.Range{keys.WakesOf(l.name), keys.Todos()}
	for _, q := range l.Worker.Served {
		work = append(work, keys.LineOf(q.Name))
	}
	for _, r := range work {
		l.Running.Go(func() { l.listenFor(ctx, w, r.Start) })
	}
}

// listenFor watches until ctx is done. It retries failures with increasing pauses.
func (l *Incarnation) listenFor(ctx context.Context, w storage.Watcher, prefix []byte) {
	for rest := time.Second; ; rest = min(2*rest, time.Minute) {
		began := time.Now()
		err := w.Watch(ctx, prefix, l.PokeNow)
		if ctx.Err() != nil {
			return
		}
		l.Worker.Log.Warn("weft: cannot watch the store; it is polled", "error", err)
		if time.Since(began) > time.Minute {
			rest = time.Second
		}
		if !backoff.Wait(ctx, rest) {
			return
		}
	}
}
