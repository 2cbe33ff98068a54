package postgres_test

import (
	"math/rand/v2"
	"testing"

	"github.com/weft-go/weft/internal/linear"
	"github.com/weft-go/weft/internal/pgtest"
)

// Calls go to two stores in turn, as those of two processes do, while connections
// are cut: at one in thirty commits, before the server has got it, after, or with
// its answer lost; and now and then elsewhere.
func TestLinearizable(t *testing.T) {
	p, url := proxied(t, pgtest.URL(t))
	s := openTwo(t, url)
	cuts := map[action]int{}
	p.on(func(m message) action {
		do := pass
		switch n := rand.IntN(3000); {
		case m.commits() && n < 100:
			do = []action{cutBefore, cutAfter, loseReply}[n%3]
		case n == 0:
			do = cutBefore
		}
		cuts[do]++
		return do
	})
	linear.CheckWithoutRanges(t, s) // what a DeleteRange keeps to: TestDeleteRangeIsSerial, and the package's caveats
	p.on(nil)
	t.Logf("of %d messages, cut before %d, after %d, with the answer lost %d", cuts[pass], cuts[cutBefore], cuts[cutAfter], cuts[loseReply])
	if cuts[loseReply] < 20 {
		t.Errorf("got %d lost answers, want at least 20", cuts[loseReply])
	}
}
