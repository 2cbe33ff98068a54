package inspect

import (
	"context"
	"sync/atomic"

	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/follow"
	"github.com/weft-go/weft/internal/meta"
	"github.com/weft-go/weft/internal/worker"
)

// A Reader reads what is stored about workflows, engines and deployments. It changes nothing.
type Reader struct {
	*worker.Worker
	Hub     *follow.Hub   // who follows the events of a run; nil in a transaction of the host
	Streams *chunks.Tails // what is read of streams; likewise

	allListed atomic.Bool // each workflow has its entries in lists: it stays so
}

// listsComplete reports whether each workflow has its entries in lists. Otherwise an engine that
// runs is adding them, or will.
func (e *Reader) listsComplete(ctx context.Context) (bool, error) {
	if e.allListed.Load() {
		return true, nil
	}
	r, err := meta.ReadLists(ctx, e.Store)
	if r.Done && err == nil {
		e.allListed.Store(true)
	}
	return r.Done, err
}
