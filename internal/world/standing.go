package world

import (
	"context"

	"github.com/weft-go/weft/storage"
)

// A Standing is how a run stands, as far as its streams need to know.
type Standing int

const (
	StandingAbsent  Standing = iota // there is no such run, or not yet
	StandingOpen                    // it has not ended
	StandingEnded                   // and is still there
	StandingRemoved                 // what is left of it is being removed
)

// StandingOf returns how a run stands.
func StandingOf(ctx context.Context, s storage.Storage, run string) (Standing, error) {
	h, err := headOf(ctx, s, run)
	switch {
	case err != nil || h == nil:
		return StandingAbsent, err
	case h.Removed > 0:
		return StandingRemoved, nil
	case h.Status.Ended():
		return StandingEnded, nil
	}
	return StandingOpen, nil
}
