package deployments

import (
	"testing"
	"time"
)

// What is known of the workflows of living engines counts for a second. That none lives does not count: the first one
// may have begun since.
func TestNamesCountForASecond(t *testing.T) {
	now := time.Now()
	n := &names{}
	n.set(map[string]bool{"w": true}, now)
	for after, want := range map[time.Duration]bool{-time.Millisecond: false, 0: true, namesFresh - 1: true, namesFresh: false} {
		if got := n.has("w", now.Add(after)); got != want {
			t.Errorf("after %v: got %v, want %v", after, got, want)
		}
	}
	if n.has("other", now) {
		t.Error("another name is known")
	}
	n.set(map[string]bool{}, now)
	if n.has("w", now) {
		t.Error("no engine lives, and that is remembered")
	}
}
