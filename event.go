package weft

import (
	"time"

	"github.com/weft-go/weft/checkpoint"
)

// An Event is something that a run learnt, at its place in the history of the run.
type Event struct {
	// ID is the place of the event: a ULID of the time, in milliseconds, and the number of its
	// checkpoint, and of its position in the checkpoint. So the ids of a run's events are in the
	// order of its history.
	ID string `json:"id"`

	Checkpoint uint64    `json:"checkpoint"` // its number
	Time       time.Time `json:"time"`       // of the checkpoint

	checkpoint.Event
}
