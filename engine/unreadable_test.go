package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

// F9: keys that cannot be read hold up no runs and no schedules behind them. Each is reported once, and no poll fails.
func TestKeysThatCannotBeReadHoldUpNothing(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		shared := sharing{s}
		waits := flow("waits", func(run *engine.Run) (string, error) { return approved.Receive(run) })
		dead := boot(t, shared, waits, nightly, rareLeases)
		start(t, waits, dead, "held", "")
		time.Sleep(time.Second)
		owner := describe(t, dead, "held").Owner
		putSchedule(t, dead.Engine, hourly(nightly, nil))
		dead.kill()

		client := made(t, shared, waits)
		defer client.Close()
		start(t, waits, client, "new", "")
		todo := string(keys.TodoOf(0).Start)
		bad := []string{
			todo + "%zz", todo + "-0000000000000001:%zz:n", todo + "-0000000000000001", todo + "0000000000000001:%zz:n", todo + "-odd:o:n",
			"held:%zz:o", "held:", "held::o", "held:" + owner + ":%zz",
			"wake:%zz:o:n", "wake:" + owner,
			"due:%zz", "due:0000000000000001", "due:0000000000000001:sch:%zz",
			"eng:%zz",
		}
		for _, key := range bad {
			put(t, s, []byte(key), nil)
		}
		log := new(lines)
		p := boot(t, shared, waits, nightly, rarestLeases, log.logger())
		time.Sleep(10 * time.Minute)
		for _, id := range []string{"held", "new"} {
			i := describe(t, p, id)
			if i.Owner == "" || i.Owner == owner {
				t.Errorf("%s belongs to %q, want the engine that runs", id, i.Owner)
			}
			if id == "held" {
				bad = append(bad, "held:"+i.Owner+":%zz")
				put(t, s, []byte(bad[len(bad)-1]), nil)
			}
			listed := false
			all, err := client.Engines(ctx)
			for _, info := range all {
				listed = listed || info.Incarnation == i.Owner
			}
			if !listed || !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("engines: %+v, %v; want the one that runs, and what cannot be read", all, err)
			}
			if _, err := approved.Send(ctx, client, id, "yes", &signal.Options{ID: "1"}); err != nil {
				t.Fatal(err)
			}
			if got := result(t, waits.Handle(client, id)); got != "yes" {
				t.Errorf("%s: %q", id, got)
			}
		}
		time.Sleep(3 * time.Hour)
		if i := scheduleOf(t, client); i.Started < 3 {
			t.Errorf("the schedule has started %d workflows in three hours", i.Started)
		}
		if said, failed := log.count("a key cannot be read; it is passed over"), log.count("poll failed"); said != len(bad) || failed != 0 {
			t.Errorf("%d keys are reported, and %d polls have failed, want %d and none", said, failed, len(bad))
		}
		p.kill()
	})
}

// F9: a record that the store fails to read keeps retention from no other run, and nothing else from expiring.
func TestARecordThatTheStoreCannotReadHoldsUpNoOther(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		usual, receives, log := ending("usual"), receiving(4), new(lines)
		var mended atomic.Bool
		f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if !mended.Load() && c.Method == "Get" && (string(c.Key) == string(keys.Workflow("b")) || strings.HasPrefix(string(c.Key), "sigres:w:approved:2")) {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		client := made(t, s, usual, receives)
		defer client.Close()
		for _, id := range []string{"a", "b", "c"} {
			start(t, usual, client, id, "done")
		}
		start(t, receives, client, "w", "")
		forgetting := func(c *engine.Config) { c.SignalIDRetention = 10 * time.Minute }
		worker := boot(t, s, usual, receives, rareLeases, forgetting)
		for _, id := range []string{"a", "b", "c"} {
			result(t, usual.Handle(worker, id))
		}
		for _, id := range []string{"1", "2", "3"} {
			if _, err := approved.Send(ctx, worker, "w", "v", &signal.Options{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		worker.stop(t)
		bootOn(t, f, usual, receives, retaining(engine.Retention{Completed: time.Minute, Failed: time.Minute}), log.logger(), forgetting)
		time.Sleep(time.Hour)
		equal(t, "runs", there(t, client, "a", "b", "c"), "[b]")
		if log.count("were not archived, or cannot be read") == 0 || log.count("workflow=b") == 0 {
			t.Error("it is not said that the run stays")
		}
		if log.count("were not removed; trying again in a minute") != 0 {
			t.Error("one record has ended a pass")
		}
		if left := entries(t, s, "sigres:"); len(left) != 1 || !strings.Contains(left[0], ":2") {
			t.Errorf("acceptances %q, want the one that cannot be read", left)
		}
		if failed, said := log.count("poll failed"), log.count("what has expired was not removed"); failed != 0 || said != 1 {
			t.Errorf("%d polls have failed, and the acceptance is reported %d times, want none and once", failed, said)
		}
		mended.Store(true)
		time.Sleep(2 * time.Hour)
		equal(t, "runs in the end", there(t, client, "a", "b", "c"), "[]")
		if left := entries(t, s, "sigres:"); len(left) != 0 {
			t.Errorf("acceptances %q when all can be read", left)
		}
	})
}

// F9: neighbours that the store fails to read hold up retention, and what expires, only once: the next look goes on behind them. What
// was archived beside them is removed, and other types of workflows get their turn.
func TestNeighboursThatTheStoreCannotReadHoldUpNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		first, last, receives, log := ending("first"), ending("second"), receiving(10), new(lines)
		unreadable := func(key string) bool {
			id, isRun := strings.CutPrefix(key, string(keys.Workflow("")))
			_, signalID, isSignal := strings.Cut(key, "sigres:w:approved:")
			return isRun && (strings.Contains("3 4 5", id) || strings.HasPrefix(id, "bad")) || isSignal && strings.ContainsAny(signalID[:1], "345")
		}
		f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			if c.Method == "Get" && unreadable(string(c.Key)) {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		forgetting := func(c *engine.Config) { c.SignalIDRetention = 10 * time.Minute }
		worker := boot(t, s, first, last, receives, rareLeases, forgetting)
		start(t, receives, worker, "w", "")
		ids := []string{"1", "2", "3", "4", "5", "6", "7"}
		for _, id := range ids {
			start(t, first, worker, id, "done")
			result(t, first.Handle(worker, id))
			if _, err := approved.Send(ctx, worker, "w", "v", &signal.Options{ID: id}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		stay := []string{"3", "4", "5"}
		for i := range 240 { // more are bad than are read together, and more are good
			id := fmt.Sprintf("bad %03d", i)
			if i < 120 {
				stay = append(stay, id)
			} else {
				id = fmt.Sprintf("more %03d", i)
			}
			start(t, first, worker, id, "done")
			result(t, first.Handle(worker, id))
			ids = append(ids, id)
		}
		start(t, last, worker, "z", "done")
		result(t, last.Handle(worker, "z"))
		worker.stop(t)
		client := made(t, s, first, last, receives)
		defer client.Close()
		var archived sync.Map
		var twice atomic.Int64
		archive := func(c *engine.Config) {
			c.Archive = func(_ context.Context, i engine.Info, _ io.Reader) error {
				if _, again := archived.LoadOrStore(i.ID, true); again {
					twice.Add(1)
				}
				return nil
			}
		}
		p := bootOn(t, f, first, last, receives, retaining(engine.Retention{Completed: time.Minute, Failed: time.Minute}), log.logger(), forgetting, archive)
		time.Sleep(30 * time.Minute)
		equal(t, "runs", there(t, client, append(ids, "z")...), stay)
		if n := twice.Load(); n != 0 {
			t.Errorf("%d runs were archived again", n)
		}
		if left := entries(t, s, "sigres:"); len(left) != 3 {
			t.Errorf("acceptances %q, want the three that cannot be read", left)
		}
		if log.count("what has expired was not removed; a later look tries again") != 3 || log.count("were not removed; trying again in a minute") == 0 {
			t.Error("it is not said what stays")
		}
		p.kill()
	})
}

// F9, OPS-10: a bulk that waits for an engine whose record is damaged keeps no other from being carried out.
func TestABulkOfADamagedEngineHoldsUpNoOther(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, log := sharing{new(memory.Store)}, new(lines)
		asks := flow("asks", func(run *engine.Run) (string, error) { return yes.Receive(run) })
		a := boot(t, s, asks, rareLeases)
		several(t, asks, a, "o", 3)
		protect := engine.Bulk{Do: engine.BulkProtect, Filter: engine.Filter{IDPrefix: "o"}}
		slow := protect
		slow.Rate = activity.Rate{Count: 1, Per: time.Hour}
		startBulk(t, a.Engine, "a", slow)
		time.Sleep(time.Minute)
		var by string
		for i, err := range a.Bulks(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			by = i.Engine
		}
		a.kill()
		put(t, s, keys.Engine(by), []byte("damaged"))

		b := boot(t, s, asks, rareLeases, log.logger())
		startBulk(t, b.Engine, "b", protect)
		time.Sleep(10 * time.Minute)
		state := map[string]bool{}
		for i, err := range b.Bulks(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			state[i.ID] = !i.EndedAt.IsZero()
		}
		equal(t, "which have ended", fmt.Sprint(state), "map[a:false b:true]")
		if said := log.count("a bulk could not go on"); said < 2 || said > 11 || log.count("bulk=a") != said {
			t.Errorf("it is said %d times in ten minutes that bulk a cannot go on, want once a minute", said)
		}
	})
}

// F9, OPS-10: bulks that have ended and cannot be forgotten keep no other from being carried out, and none from being forgotten.
func TestBulksThatCannotBeForgottenHoldUpNoOther(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, log := new(memory.Store), new(lines)
		var mended atomic.Bool
		f := storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
			id, ok := strings.CutPrefix(string(c.Range.Start), "bref:")
			if ok && !mended.Load() && strings.Contains("a1: a2: a3:", id) {
				return storagetest.ErrorBefore
			}
			return storagetest.None
		})
		quick := flow("quick", func(run *engine.Run) (string, error) { return "", nil })
		p := bootOn(t, f, quick, rareLeases, log.logger(), func(c *engine.Config) { c.TombstoneRetention = time.Hour })
		client := made(t, s, quick)
		defer client.Close()
		several(t, quick, p, "o", 3)
		protect := engine.Bulk{Do: engine.BulkProtect, Filter: engine.Filter{IDPrefix: "o"}}
		for _, id := range []string{"a1", "a2", "a3", "a4"} {
			startBulk(t, p.Engine, id, protect)
			whenEnded(t, client, id)
		}
		time.Sleep(65 * time.Minute)
		startBulk(t, p.Engine, "b", protect)
		time.Sleep(time.Minute)
		if i := bulkOf(t, client, "b"); i.EndedAt.IsZero() {
			t.Errorf("the bulk behind them: %+v", i)
		}
		time.Sleep(5 * time.Minute)
		equal(t, "there", fmt.Sprint(entries(t, s, "bulk:")), "[bulk:a1 bulk:a2 bulk:a3 bulk:b]")
		if said := log.count("poll failed"); said == 0 || said != log.count("bulk:a1") {
			t.Errorf("%d polls have failed, and %d name a bulk that stays", said, log.count("bulk:a1"))
		}
		mended.Store(true)
		time.Sleep(5 * time.Minute)
		equal(t, "there in the end", fmt.Sprint(entries(t, s, "bulk:")), "[bulk:b]")
	})
}

// RET-6: a purge does not remove what only a newer release can ask to stop: it is refused until that has done so.
func TestPurgeKeepsChildrenThatANewerReleaseAsks(t *testing.T) {
	onStoresInVirtualTime(t, func(t *testing.T, store sweep.Store) {
		s := store.Open(t)
		defer s.Close()
		parent := flow("parent", func(run *engine.Run) (string, error) {
			endless.AsChild(engine.ChildOptions{ID: "child"}).Go(run, "")
			return "", run.Sleep(decade)
		})
		p := boot(t, s, parent, endless, parking)
		start(t, parent, p, "o", "")
		time.Sleep(time.Minute)
		dying := &after{Storage: s, put: string(keys.Output("o"))}
		e := made(t, dying, leases)
		if err := e.Terminate(ctx, "o", audit); err != nil || dying.refused == 0 {
			t.Fatal(err, dying.refused)
		}
		e.Close()
		p.kill()
		kids := entries(t, s, "kid:o:")
		if len(kids) != 1 {
			t.Fatalf("children %q", kids)
		}
		newer, err := record.Seal([]byte(kids[0]), 200, &struct{}{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, []byte(kids[0]), newer)
		client := made(t, s)
		defer client.Close()
		for range 2 {
			if err := client.Purge(ctx, "o", audit); !errors.Is(err, storage.ErrFutureFormat) {
				t.Errorf("purge: %v, want ErrFutureFormat", err)
			}
		}
		if left := entries(t, s, "kid:o:"); len(left) != 1 {
			t.Errorf("children %q, want the one that is not asked yet", left)
		}
		if wf, err := journal.Load(ctx, s, "o"); err != nil || wf.Tombstone() {
			t.Errorf("the parent: %+v, %v", wf, err)
		}
	})
}
