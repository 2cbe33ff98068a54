package activity

import "time"

// Bound is the number of attempts in all; negative is no bound.
func (r Retry) Bound() int {
	if r.Attempts == 0 {
		return 5
	}
	return r.Attempts
}

// Pause is how long to wait after a failed attempt, which is counted from 1: the
// backoff doubled for each attempt before it, at most MaxBackoff, and of its upper
// half as much as chance has it ("equal jitter": far enough apart not to meet
// again, never near zero). random returns a number from 0 to before n.
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
