package postgres_test

import (
	"math/rand/v2"
	"testing"

	"github.com/weft-go/weft/internal/linear"
	"github.com/weft-go/weft/internal/pgtest"
)

// Calls alternate between two stores, as if from two processes, while connections are cut:
// at every thirtieth commit, in turn before the server received it, after, or so that its
// answer is lost; and sometimes elsewhere.
func TestLinearizable(t *testing.T) {
	p, url := proxied(t, pgtest.URL(t))
	s := openTwo(t, url, "")
	commits, cuts := 0, map[action]int{}
	p.on(func(m message) action {
		do := pass
		switch {
		case m.commits():
			if commits++; commits%30 == 0 {
				do = []action{cutBefore, cutAfter, loseReply}[commits/30%3]
			}
		case rand.IntN(3000) == 0:
			do = cutBefore
		}
		cuts[do]++
		return do
	})
	linear.CheckWithoutRanges(t, s) // for the guarantees of DeleteRange see TestDeleteRangeIsSerial and the package's caveats
	p.on(nil)
	t.Logf("of %d messages, %d of them commits, cut before %d, after %d, with the answer lost %d", cuts[pass], commits, cuts[cutBefore], cuts[cutAfter], cuts[loseReply])
	if cuts[loseReply] < 5 {
		t.Errorf("got %d lost answers, want at least 5", cuts[loseReply])
	}
}
