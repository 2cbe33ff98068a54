package admin

import (
	"context"
	"log/slog"

	"github.com/weft-go/weft/internal/worker"
)

// An Admin does what clients and operators ask for about workflows that exist.
type Admin struct{ *worker.Worker }

// did logs what was done, unless it is staged: the host may roll it back.
func (e *Admin) did(level slog.Level, what string, args ...any) {
	if !e.Staged {
		e.Log.Log(context.Background(), level, what, args...)
	}
}
