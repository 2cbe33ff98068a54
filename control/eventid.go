package control

import (
	"encoding/binary"
	"time"

	"github.com/oklog/ulid/v2"
)

// A place is where an event is in the history of its run.
type place struct {
	checkpoint uint64
	position   int // in the checkpoint, from 0
}

// after reports whether p comes after q.
func (p place) after(q place) bool {
	return p.checkpoint > q.checkpoint || p.checkpoint == q.checkpoint && p.position > q.position
}

// eventID returns the id of an event: the ULID of the milliseconds of its checkpoint, the number
// of the checkpoint, and the position of the event in it. So ids of one run are in the order of its
// history.
func eventID(at time.Time, p place) string {
	var id ulid.ULID
	ms := uint64(max(at.UnixMilli(), 0))
	_ = id.SetTime(min(ms, ulid.MaxTime()))
	binary.BigEndian.PutUint64(id[6:], p.checkpoint)
	binary.BigEndian.PutUint16(id[14:], uint16(p.position))
	return id.String()
}

// placeOf returns the place of the event with an id. It is false if no event has such an id.
func placeOf(id string) (place, bool) {
	u, err := ulid.ParseStrict(id)
	if err != nil || u.String() != id {
		return place{}, false
	}
	return place{binary.BigEndian.Uint64(u[6:]), int(binary.BigEndian.Uint16(u[14:]))}, true
}

// sameTime reports whether two ids of events, which are valid, have the same time.
func sameTime(a, b string) bool { return a[:ulidTime] == b[:ulidTime] }

// ulidTime is how many characters of a ULID are its time.
const ulidTime = 10
