package worker

import (
	"context"
	"github.com/weft-go/weft/internal/meta"
	"time"
)

// stampCheck is the duty to stop the engine if a newer release has upgraded the store.
type stampCheck struct {
	incarnation *Incarnation
	last        time.Time
}

// look calls outgrown once per PollInterval, and less often while the engine is idle.
func (s *stampCheck) look(ctx context.Context) error {
	if s.incarnation.takeover.idle || time.Since(s.last) < s.incarnation.Worker.PollInterval {
		return nil
	}
	s.last = time.Now()
	return s.incarnation.Worker.outgrown(ctx)
}

// outgrown returns an error if a newer release has upgraded the store.
func (e *Worker) outgrown(ctx context.Context) error { return meta.Outgrown(ctx, e.Store, e.Ownership) }
