package upkeep

import (
	"context"
	"time"

	"github.com/weft-go/weft/internal/worker"
)

// stampCheck is the duty to stop the engine if a newer release has upgraded the store.
type stampCheck struct {
	incarnation *worker.Incarnation
	last        time.Time
}

// look calls Outgrown once per PollInterval, and less often while the engine is idle.
func (s *stampCheck) look(ctx context.Context) error {
	if s.incarnation.Idle() || time.Since(s.last) < s.incarnation.Worker.PollInterval {
		return nil
	}
	s.last = time.Now()
	return s.incarnation.Worker.Outgrown(ctx)
}
