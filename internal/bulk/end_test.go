package bulk

import (
	"testing"
	"time"
)

// A bulk is remembered for a time after its end. A clock that is behind does not shorten that.
func TestABulkDoesNotEndBeforeItsStart(t *testing.T) {
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, now := range []time.Time{time.Unix(1, 0), started.Add(-40 * 24 * time.Hour), started, started.Add(time.Hour)} {
		r := &Record{At: started.UnixMicro()}
		r.end(now)
		want := now
		if now.Before(started) {
			want = started
		}
		if r.EndedAt != want.UnixMicro() {
			t.Errorf("ended at %v by the clock, which was recorded as %v", now, time.UnixMicro(r.EndedAt))
		}
	}
}
