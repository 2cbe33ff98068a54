package admin

import (
	"github.com/weft-go/weft/internal/follow"
	"github.com/weft-go/weft/internal/worker"
)

// An Admin does what clients and operators ask for about workflows that exist.
type Admin struct {
	*worker.Worker
	Hub *follow.Hub // who follows the events of a run; nil in a transaction of the host
}
