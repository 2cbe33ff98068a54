package worker

import (
	"context"
	"time"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/membership"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// Certain returns a time that has certainly passed: see membership.Witness. It returns false while none is known.
func (l *Incarnation) Certain() (time.Time, bool) {
	if !l.witness.Begun() {
		return time.Time{}, false
	}
	return l.witness.Now(l.Worker.Read()), true
}

// Passed is Certain for the poll. If no time is known, it reads the records of engines for it.
func (l *Incarnation) Passed(ctx context.Context) (time.Time, error) {
	if !l.witness.Begun() {
		if err := l.testify(ctx); err != nil {
			return time.Time{}, err
		}
	}
	return l.witness.Now(l.Worker.Read()), nil
}

// testify initializes the witness with the times in the records of engines.
func (l *Incarnation) testify(ctx context.Context) error {
	var known, slowest time.Time
	for entry, err := range storage.All(ctx, l.Worker.Store, keys.Engines()) {
		if err != nil {
			return err
		}
		var r membership.Registration
		if _, err := record.Open(entry.Key, entry.Value, journal.Version, &r); err != nil {
			continue // damaged, or of a newer release
		}
		incarnation, err := keys.Last(entry.Key)
		if err != nil || incarnation == l.name {
			continue
		}
		if r.Proven != 0 {
			known = membership.Later(known, journal.Time(r.Proven))
		} else { // an earlier release wrote it
			known = membership.Later(known, r.Latest())
		}
		if v, met := l.fleet.others[incarnation]; met && v == membership.Alive {
			continue // refreshFleet passes it to the witness
		}
		if last := r.Last(); slowest.IsZero() || last.Before(slowest) {
			slowest = last
		}
	}
	l.witness.Reset(known, slowest, l.Worker.Read())
	return nil
}
