package postgres_test

import (
	"math/rand/v2"
	"testing"

	"github.com/weft-go/weft/internal/linear"
	"github.com/weft-go/weft/internal/pgtest"
)

// Calls alternate between two stores, as if from two processes, while connections are cut:
// at one commit in thirty, before the server received it, after, or so that its answer is
// lost; and sometimes elsewhere.
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
	linear.CheckWithoutRanges(t, s) // for the guarantees of DeleteRange see TestDeleteRangeIsSerial and the package's caveats
	p.on(nil)
	t.Logf("of %d messages, cut before %d, after %d, with the answer lost %d", cuts[pass], cuts[cutBefore], cuts[cutAfter], cuts[loseReply])
	if cuts[loseReply] < 20 {
		t.Errorf("got %d lost answers, want at least 20", cuts[loseReply])
	}
}
