package trail

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"
)

// Entries that are gone are forgotten, however many there are. Those that a poll meets again and again are kept.
func TestSkippedEntriesThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Skipped
		entry := func(i uint32) []byte { return binary.BigEndian.AppendUint32(nil, i) }
		const there = 60_000 // more than are kept in any case
		for i := range uint32(there) {
			s.Add(entry(i), time.Second)
		}
		most := 0
		for minute := range uint32(30) {
			time.Sleep(time.Minute)
			for i := range uint32(there) {
				if !s.Has(entry(i)) {
					t.Fatalf("after %d minutes entry %d, which is there, is forgotten", minute, i)
				}
			}
			for i := range uint32(30_000) {
				s.Add(entry(there+minute*30_000+i), time.Second)
				most = max(most, len(s.met))
			}
		}
		if most > 6*there {
			t.Errorf("%d entries are remembered, of which %d are there", most, there)
		}
		s.Clear()
		if s.Has(entry(0)) {
			t.Error("what is cleared is skipped")
		}
	})
}

// An engine that polls rarely keeps what it meets in each poll.
func TestSkippedEntriesOfRarePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Skipped
		s.Add([]byte("there"), time.Hour)
		for i := range uint32(3 * many) {
			if i%many == 0 {
				if !s.Has([]byte("there")) {
					t.Fatal("an entry that was met in each poll is forgotten")
				}
				time.Sleep(time.Hour)
			}
			s.Add(binary.BigEndian.AppendUint32(nil, i), time.Hour)
		}
	})
}
