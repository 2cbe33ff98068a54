package engine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/stream"
)

// onProcesses runs f with n openings of a new store, as n processes have it: of each store that several may share.
func onProcesses(t *testing.T, n int, f func(t *testing.T, ss []storage.Storage)) {
	t.Helper()
	on := func(name string, open func(t *testing.T) func() (storage.Storage, error)) {
		t.Run(name, func(t *testing.T) {
			one := open(t)
			var ss []storage.Storage
			for range n {
				s, err := one()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() }) // after those of f
				ss = append(ss, s)
			}
			f(t, ss)
		})
	}
	on("sqlite", func(t *testing.T) func() (storage.Storage, error) {
		path := filepath.Join(t.TempDir(), "store")
		return func() (storage.Storage, error) { return stored(sqlite.Open(path, &sqlite.Options{Shared: true})) }
	})
	on("postgres", func(t *testing.T) func() (storage.Storage, error) {
		url := pgtest.URL(t)
		return func() (storage.Storage, error) { return stored(postgres.Open(ctx, url, nil)) }
	})
}

// Followers in three processes see each event of a run and each chunk of its stream once, in order.
func TestFollowersInThreeProcesses(t *testing.T) {
	onProcesses(t, 3, func(t *testing.T, ss []storage.Storage) {
		const rounds = 20
		each := torture.Rounds(200, 50, 10) // chunks in a round
		ask := &activity.Activity[int, int]{Name: "ask", Run: func(ctx context.Context, round int) (int, error) {
			w := words.Writer(ctx)
			for i := range each {
				if err := w.Write(fmt.Sprint(round, " ", i)); err != nil {
					return 0, err
				}
			}
			return round, nil
		}}
		wf := flow("wf", func(run *engine.Run) (string, error) {
			for range rounds {
				n, err := added.Receive(run)
				if err == nil {
					_, err = ask.Do(run, n)
				}
				if err != nil {
					return "", err
				}
			}
			return "done", nil
		})
		quick := func(c *engine.Config) { c.PollInterval = 20 * time.Millisecond }
		p := boot(t, ss[0], wf, quick)
		es := []*engine.Engine{p.Engine}
		for i, s := range ss[1:] {
			e := made(t, s, wf, quick, func(c *engine.Config) { c.Name = fmt.Sprint("other", i) })
			defer e.Close()
			es = append(es, e)
		}
		h := start(t, wf, p, "o", "")
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		var following sync.WaitGroup
		events, chunks := make([][]engine.Event, 2*len(es)), make([][]string, 2*len(es))
		follow := func(i int) {
			e := es[i%len(es)]
			following.Go(func() {
				for ev, err := range e.Follow(ctx, "o", "") {
					if err != nil {
						t.Errorf("follower %d: %v", i, err)
						return
					}
					events[i] = append(events[i], ev)
				}
			})
			following.Go(func() {
				var err error
				if chunks[i], err = chunksIn(t, words.Read(ctx, stream.Source(e), "o", 0), 0); err != nil {
					t.Errorf("reader %d: %v", i, err)
				}
			})
		}
		for i := range es {
			follow(i)
		}
		var want []string
		for n := range rounds {
			if n == rounds/2 {
				for i := range es { // in the midst of it
					follow(len(es) + i)
				}
			}
			if _, err := added.Send(ctx, es[n%len(es)], "o", n, &signal.Options{ID: fmt.Sprint(n)}); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := h.Result(ctx); err != nil || got != "done" {
			t.Fatalf("result %q, %v", got, err)
		}
		following.Wait()
		order := map[string]bool{} // of the rounds: any
		for _, c := range chunks[0] {
			if round, _, _ := strings.Cut(c, " "); !order[round] {
				order[round] = true
				for i := range each {
					want = append(want, fmt.Sprint(round, " ", i))
				}
			}
		}
		if len(order) != rounds {
			t.Errorf("%d rounds are in the stream, want %d", len(order), rounds)
		}
		for i, got := range chunks {
			if !slices.Equal(got, want) {
				t.Errorf("reader %d got %d chunks, want %d, each once and in order", i, len(got), len(want))
			}
		}
		var all []engine.Event
		for c, err := range p.History(ctx, "o") {
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range c.Events {
				all = append(all, engine.Event{Checkpoint: c.Number, Time: c.Time, Event: ev})
			}
		}
		for i, got := range events {
			if diff := cmp.Diff(all, without(t, got)); diff != "" {
				t.Errorf("follower %d: %s", i, diff)
			}
		}
		p.stop(t)
	})
}

// While five writers start 1,000 workflows, no list has one twice, and each has once what was there.
func TestListsWhileOthersWrite(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		const writers, there = 5, 60
		each := torture.Rounds(200, 200, 40)
		wf := flow("wf", nil2)
		e := made(t, s, wf)
		defer e.Close()
		o := engine.StartOptions{Labels: map[string]string{"team": "blue"}}
		was := map[string]bool{}
		for i := range there {
			was[start(t, wf.With(o), e, fmt.Sprint("there ", i), "").ID()] = true
		}
		var writing sync.WaitGroup
		listed, wrote, done := make(chan bool), make(chan bool, writers), make(chan bool)
		for w := range writers {
			writing.Go(func() {
				for i := range each {
					if i == each/2 {
						<-listed
					}
					if _, err := wf.With(o).Start(ctx, e, fmt.Sprintf("%d/%d", w, i), ""); err != nil {
						t.Error(err)
					}
					if i == each/2 {
						wrote <- true
					}
				}
			})
		}
		go func() { writing.Wait(); close(done) }()
		afterPage := func() {}
		seen := func(f engine.Filter, ascending bool) (n int) {
			got := map[string]int{}
			r := engine.PageRequest{Limit: 17, Ascending: ascending}
			for more := true; more; {
				page, err := e.Page(ctx, f, r)
				afterPage()
				if err != nil {
					t.Error(err)
					return 0
				}
				for _, i := range page.Data {
					got[i.ID]++
				}
				more, r.Cursor = page.HasMore, page.Next
			}
			for id, n := range got {
				if n > 1 {
					t.Errorf("%+v, ascending %v: %q is there %d times", f, ascending, id, n)
				}
			}
			for id := range was {
				if got[id] != 1 {
					t.Errorf("%+v, ascending %v: %q is there %d times, and was there before", f, ascending, id, got[id])
				}
			}
			return len(got)
		}
		filters := []engine.Filter{{}, {Workflow: "wf"}, {Labels: o.Labels}}
		for n, listing := 0, true; listing; n++ {
			select {
			case <-done:
				listing = false
			default:
				if n == 1 { // between two pages of this list others write, for certain
					afterPage = sync.OnceFunc(func() { close(listed); <-wrote })
				}
				seen(filters[n%3], n%2 == 0)
			}
		}
		for n := range 6 {
			if got := seen(filters[n%3], n%2 == 0); got != there+writers*each {
				t.Errorf("%+v: %d workflows, want %d", filters[n%3], got, there+writers*each)
			}
		}
	})
}
