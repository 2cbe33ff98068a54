package journal

import (
	"encoding/binary"
	"time"

	"github.com/oklog/ulid/v2"
)

// EventID returns the id of the event at p, by the time of its checkpoint: the ULID of the milliseconds of that
// time, the number of the checkpoint, and the position of the event in it. It is stored nowhere. The ids of one
// run are in the order of its history.
func EventID(at time.Time, p Place) string {
	var id ulid.ULID
	_ = id.SetTime(min(uint64(max(at.UnixMilli(), 0)), ulid.MaxTime())) // cannot fail with such a time
	binary.BigEndian.PutUint64(id[6:], p.Checkpoint)
	binary.BigEndian.PutUint16(id[14:], uint16(p.Event))
	return id.String()
}

// EventPlace returns the place of the event with an id. It is false if no event has such an id.
func EventPlace(id string) (Place, bool) {
	u, err := ulid.ParseStrict(id)
	if err != nil || u.String() != id {
		return Place{}, false
	}
	return Place{binary.BigEndian.Uint64(u[6:]), int(binary.BigEndian.Uint16(u[14:]))}, true
}
