package inspect

import (
	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/follow"
	"github.com/weft-go/weft/internal/worker"
)

// A Reader reads what is stored about workflows, engines and deployments. It changes nothing.
type Reader struct {
	*worker.Worker
	Hub     *follow.Hub   // who follows the events of a run; nil in a transaction of the host
	Streams *chunks.Tails // what is read of streams; likewise
}
