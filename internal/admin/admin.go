package admin

import "github.com/weft-go/weft/internal/worker"

// An Admin does what clients and operators ask for about workflows that exist.
type Admin struct{ *worker.Worker }
