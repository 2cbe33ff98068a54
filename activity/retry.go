package activity

import "time"

// Bound is the maximum number of attempts; negative is no limit.
func (r Retry) Bound() int {
	if r.MaxAttempts == 0 {
		return 5
	}
	return r.MaxAttempts
}

// Pause is how long to wait after a failed attempt, which is counted from 1. The
// backoff is doubled for each attempt before it, up to MaxBackoff. The pause is uniform
// over the upper half of that ("equal jitter"), so retries spread out and never follow
// at once. random returns a number from 0 to before n.
func (r Retry) Pause(attempt int, random func(n int64) int64) time.Duration {
	pause, longest := r.Backoff, r.MaxBackoff
	if pause == 0 {
		pause = time.Second
	}
	if longest == 0 {
		longest = time.Minute
	}
	for range attempt - 1 {
		if pause >= longest/2 {
			pause = longest
			break
		}
		pause *= 2
	}
	pause = min(pause, longest)
	return pause/2 + time.Duration(random(int64(pause/2)+1))
}
