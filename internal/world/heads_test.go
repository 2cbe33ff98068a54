package world

import (
	"fmt"
	"testing"
)

// A World keeps a limited number of heads, and none of runs that have ended.
func TestHeadsAreLimited(t *testing.T) {
	hs := new(heads)
	running := &head{Status: Running}
	var run string
	for i := range mostHeads + 10 {
		run = fmt.Sprint("wrun_", i)
		if hs.keep(run, nil, running, nil); hs.last(run) == nil {
			t.Fatalf("the head of %s is not kept", run)
		}
	}
	if n := len(hs.byRun); n != mostHeads {
		t.Errorf("%d heads are kept, want %d", n, mostHeads)
	}
	hs.keep(run, running, &head{Status: Completed}, nil)
	if n := len(hs.byRun); n != mostHeads-1 {
		t.Errorf("%d heads are kept after the end of a run, want %d", n, mostHeads-1)
	}
}
