package admission

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// However time is cut, no more than Count are admitted within Per. Who is told how long
// to wait is admitted then, and not a microsecond before; and the record does not grow.
func TestAdmissionsKeepTheRate(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 100 {
		rate := activity.Rate{Count: 1 + rnd.IntN(5), Per: time.Duration(1+rnd.IntN(1000)) * time.Millisecond}
		now, r := noon, &admissions{}
		var times []time.Time
		for range 200 {
			next, wait := r.then(now, rate)
			switch {
			case wait > 0:
				if _, again := r.then(now.Add(wait-time.Microsecond), rate); again <= 0 {
					t.Fatalf("seed %d: %v: told to wait for %v, and admitted before", seed, rate, wait)
				}
				if _, again := r.then(now.Add(wait), rate); again > 0 {
					t.Fatalf("seed %d: %v: waited for %v, and told to wait for %v", seed, rate, wait, again)
				}
			case len(next.Times) > rate.Count:
				t.Fatalf("seed %d: %v: the record has %d times", seed, rate, len(next.Times))
			default:
				r, times = next, append(times, now)
			}
			now = now.Add(time.Duration(rnd.Int64N(int64(rate.Per) / int64(rate.Count) * 2))).Truncate(time.Microsecond)
		}
		for i := rate.Count; i < len(times); i++ {
			if d := times[i].Sub(times[i-rate.Count]); d < rate.Per {
				t.Fatalf("seed %d: %v: %d were admitted within %v", seed, rate, rate.Count+1, d)
			}
		}
	}
}

// F6: a clock that is ahead by less than the span of a rate delays others by no more
// than that; one that is further ahead was wrong, and does not close the queue.
func TestAdmissionsOfAnotherClock(t *testing.T) {
	rate := activity.Rate{Count: 1, Per: time.Minute}
	for ahead, want := range map[time.Duration]time.Duration{
		-time.Minute:         0,
		-59 * time.Second:    time.Second,
		59 * time.Second:     119 * time.Second,
		time.Minute:          0,
		365 * 24 * time.Hour: 0,
	} {
		r := &admissions{Times: []int64{noon.Add(ahead).UnixMicro()}}
		next, wait := r.then(noon, rate)
		if wait != want {
			t.Errorf("ahead by %v: told to wait for %v, want %v", ahead, wait, want)
		}
		if want == 0 && !slices.Equal(next.Times, []int64{noon.UnixMicro()}) {
			t.Errorf("ahead by %v: kept %v", ahead, next.Times)
		}
	}
}
