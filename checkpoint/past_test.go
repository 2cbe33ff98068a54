package checkpoint_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// The past that is read together with a claim is what reading it afterwards would return, also
// if numbers are skipped. A long history is not read.
func TestPast(t *testing.T) {
	for _, n := range []int{0, 1, 5, 63, 64, 65, 200} {
		for _, gap := range []uint64{0, 1000} {
			t.Run(fmt.Sprint(n, " checkpoints, gap ", gap), func(t *testing.T) {
				ctx, s, now := t.Context(), new(memory.Store), time.Now()
				in, err := journal.PutInput("w", &journal.Input{Generation: "g", Data: []byte("1")})
				if err != nil {
					t.Fatal(err)
				}
				w, err := journal.Create(&journal.Workflow{ID: "w", Generation: "g", Type: "t"}, nil, "", keys.Todo(0, now, "w", "n"), 0, now)
				if err != nil {
					t.Fatal(err)
				}
				w.Batch.Ops = append(w.Batch.Ops, in)
				hold := &journal.Hold{Workflow: w.After}
				do := func(w *journal.Write, err error) {
					t.Helper()
					if err == nil {
						err = s.Commit(ctx, w.Batch)
					}
					if err != nil {
						t.Fatal(err)
					}
					if w.Entry.Number > 0 {
						hold = w.Hold()
					}
				}
				do(w, nil)
				for range n {
					do(hold.Append(journal.Change{Events: []checkpoint.Event{{Kind: checkpoint.KindFired, Operation: "1"}}}, now))
				}
				wf, err := journal.Load(ctx, s, "w")
				if err != nil {
					t.Fatal(err)
				}
				found, past, err := journal.FindPast(ctx, s, wf)
				if err != nil || found.Head != hold.Head {
					t.Fatalf("got head %d, %v, want %d", found.Head, err, hold.Head)
				}
				if short := n < 64; (past != nil) != short {
					t.Fatalf("a past was read: %v, want %v", past != nil, short)
				}
				if past == nil {
					return
				}
				claim, err := found.Claim("me", "", gap+hold.Head, now)
				do(claim, err)
				past = past.Then(claim)
				if in, err := past.Input(hold.Workflow); err != nil || string(in.Data) != "1" {
					t.Errorf("got input %v, %v", in, err)
				}
				var want, got []string
				for c, err := range journal.History(ctx, s, hold.Workflow) {
					want = append(want, fmt.Sprint(c, err))
				}
				next := past.Reader(hold.Workflow)
				for c, err, ok := next(); ok; c, err, ok = next() {
					got = append(got, fmt.Sprint(c, err))
				}
				if fmt.Sprint(got) != fmt.Sprint(want) || len(got) < n+1 {
					t.Errorf("got history\n%v, want\n%v", got, want)
				}
			})
		}
	}
}

// A missing or damaged input is detected when it is needed, as it is without a past.
func TestPastDamaged(t *testing.T) {
	ctx, s := t.Context(), new(memory.Store)
	wf := &journal.Workflow{ID: "w", Generation: "g", Type: "t", Base: 7}
	if _, err := journal.Replace(nil, nil, wf); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Put(keys.Input("w"), []byte("damaged"))}}); err != nil {
		t.Fatal(err)
	}
	_, past, err := journal.FindPast(ctx, s, wf)
	if err != nil || past == nil {
		t.Fatal(past, err)
	}
	if _, err := past.Input(wf); err == nil {
		t.Error("a damaged input was read")
	}
}
