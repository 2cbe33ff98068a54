package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// A sum is what an adder carries from life to life.
type sum struct {
	Lives int
	Seen  []int
}

var added = &signal.Signal[int]{Name: "add"}

// adder receives numbers, some in each life, until a negative one comes.
func adder(each int) *engine.Workflow[sum, sum] {
	return &engine.Workflow[sum, sum]{Name: "adder", Func: func(run *engine.Run, s sum) (sum, error) {
		s.Lives++
		for range each {
			n, err := added.Receive(run)
			if err != nil {
				return s, err
			}
			if n < 0 {
				return s, nil
			}
			s.Seen = append(s.Seen, n)
		}
		return sum{}, engine.ContinueAsNew(run, s)
	}}
}

func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// CAN-1, CAN-2: no signal is lost or received twice, however often the run continues.
func TestSignalsOfAllLives(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		const count = 60
		w := adder(3)
		p := boot(t, s, w)
		h := start(t, w, p, "a", sum{})
		for i := range count {
			if _, err := added.Send(ctx, p, "a", i, &signal.Options{ID: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := added.Send(ctx, p, "a", -1, nil); err != nil {
			t.Fatal(err)
		}
		got, err := soon(h)
		if err != nil || !slices.Equal(got.Seen, numbers(count)) || got.Lives != count/3+1 {
			t.Errorf("%+v, %v", got, err)
		}
		first := historyOf(t, p.Engine, "a")[0]
		if ks := kinds([]checkpoint.Checkpoint{first}); !slices.Contains(ks, checkpoint.KindContinued) {
			t.Errorf("the last life begins with %v", ks)
		}
		if left := entries(t, s, "wf:a:ckpt:"); len(left) > 4 {
			t.Errorf("%d checkpoints are left: %v", len(left), left)
		}
		if left := entries(t, s, "exp:"); len(left) != count+1 {
			t.Errorf("%v", left)
		}
	})
}
