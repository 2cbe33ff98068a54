package control

import (
	"testing"
	"time"
)

// What is known of the workflows of living engines, or that none lives, counts for a second.
func TestNamesCountForASecond(t *testing.T) {
	now := time.Now()
	for _, nobody := range []bool{true, false} {
		n := &names{}
		n.set(map[string]bool{"w": !nobody}, nobody, now)
		for after, want := range map[time.Duration]bool{-time.Millisecond: false, 0: true, namesFresh - 1: true, namesFresh: false} {
			if got := n.has("w", now.Add(after)); got != want {
				t.Errorf("nobody %v, after %v: got %v, want %v", nobody, after, got, want)
			}
		}
		if n.has("other", now) != nobody {
			t.Errorf("nobody %v: another name is known: %v", nobody, !nobody)
		}
	}
}
