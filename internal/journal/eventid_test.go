package journal_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/journal"
)

func TestEventIDsAreInTheOrderOfTheHistory(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	last := ""
	for _, e := range []struct {
		at time.Time
		journal.Place
	}{
		{time.Time{}, journal.Place{1, 0}}, {now, journal.Place{1, 0}}, {now, journal.Place{1, 1}}, {now, journal.Place{1, 256}}, {now, journal.Place{2, 0}},
		{now.Add(time.Millisecond), journal.Place{3, 0}}, {now.Add(time.Hour), journal.Place{math.MaxUint64, math.MaxUint16}},
	} {
		id := journal.EventID(e.at, e.Place)
		if id <= last || len(id) != 26 {
			t.Errorf("%v has id %s after %s", e, id, last)
		}
		last = id
		if p, ok := journal.EventPlace(id); !ok || p != e.Place {
			t.Errorf("%s is the id of %v, %v; want %v", id, p, ok, e.Place)
		}
	}
}

func TestNoEventHasSuchAnID(t *testing.T) {
	id := journal.EventID(time.Now(), journal.Place{7, 3})
	for _, bad := range []string{"", "1", strings.ToLower(id), id + "0", id[1:], " " + id, "8" + id[1:], id[:25] + "U", "\r\n" + id} {
		if p, ok := journal.EventPlace(bad); ok {
			t.Errorf("%q is the id of %v", bad, p)
		}
	}
}
