package control

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestEventIDsAreInTheOrderOfTheHistory(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	last := ""
	for _, e := range []struct {
		at time.Time
		place
	}{
		{time.Time{}, place{1, 0}}, {now, place{1, 0}}, {now, place{1, 1}}, {now, place{1, 256}}, {now, place{2, 0}},
		{now.Add(time.Millisecond), place{3, 0}}, {now.Add(time.Hour), place{math.MaxUint64, math.MaxUint16}},
	} {
		id := eventID(e.at, e.place)
		if id <= last || len(id) != 26 {
			t.Errorf("%v has id %s after %s", e, id, last)
		}
		last = id
		if p, ok := placeOf(id); !ok || p != e.place {
			t.Errorf("%s is the id of %v, %v; want %v", id, p, ok, e.place)
		}
	}
}

func TestNoEventHasSuchAnID(t *testing.T) {
	id := eventID(time.Now(), place{7, 3})
	for _, bad := range []string{"", "1", strings.ToLower(id), id + "0", id[1:], " " + id, "8" + id[1:], id[:25] + "U", "\r\n" + id} {
		if p, ok := placeOf(bad); ok {
			t.Errorf("%q is the id of %v", bad, p)
		}
	}
}
