package engine_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/deployment"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// A hostTx is a transaction of the host.
type hostTx struct {
	storage.Tx
	commit   func() error
	rollback func()
}

// staging is a hostTx that is a stage.
func staging(s storage.Storage) hostTx {
	tx := stage.New(s)
	return hostTx{tx, func() error {
		b, err := tx.Batch()
		if err != nil {
			return err
		}
		return settle.Commit(ctx, s, b, nil, func(context.Context) (bool, error) { return false, nil })
	}, func() {}}
}

// onAllTransactions runs f on stages of all stores, and on real transactions. Only a stage lets
// others write what it rests on.
func onAllTransactions(t *testing.T, f func(t *testing.T, s storage.Storage, begin func(testing.TB) hostTx, staged bool)) {
	t.Helper()
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		f(t, s, func(testing.TB) hostTx { return staging(s) }, true)
	})
	t.Run("transactions of sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "host.db")
		s, err := sqlite.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		host, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)&_txlock=immediate")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { host.Close() })
		f(t, s, func(t testing.TB) hostTx {
			tx, err := host.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			return hostTx{s.WithTx(tx), tx.Commit, func() { tx.Rollback() }}
		}, false)
	})
	t.Run("transactions of postgres", func(t *testing.T) {
		url := pgtest.URL(t)
		s, err := postgres.Open(ctx, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		host := pgtest.Pool(t, url)
		f(t, s, func(t testing.TB) hostTx {
			tx, err := host.BeginTx(ctx, pgx.TxOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return hostTx{s.WithTx(tx), func() error { return tx.Commit(ctx) }, func() { tx.Rollback(ctx) }}
		}, false)
	})
}

// A verb is what a Tx can stage.
type verb struct {
	name    string
	do      func(in *engine.Tx) error
	seen    func(c *engine.Engine, in *engine.Tx) bool // its effect, in the Tx or, without one, in the store
	disturb func(e *engine.Engine) error               // changes what it rests on, but not what it does; nil: nothing can
	nothing bool                                       // it writes nothing
}

// stagedVerbs are played one after the other on what prepare has left.
func stagedVerbs() []verb {
	wf := flow("staged", nil2)
	blue, green := "blue", "green"
	n := 0
	label := func(id string) func(e *engine.Engine) error {
		return func(e *engine.Engine) error {
			n++
			return e.Label(ctx, id, map[string]string{"n": fmt.Sprint(n)}, audit)
		}
	}
	info := func(id string, ok func(engine.Info) bool) func(*engine.Engine, *engine.Tx) bool {
		return func(e *engine.Engine, in *engine.Tx) bool {
			var c engine.Client = e
			if in != nil {
				c = in
			}
			i, err := c.Describe(ctx, id)
			return err == nil && ok(i)
		}
	}
	active := func(id string) func(*engine.Engine, *engine.Tx) bool {
		return func(e *engine.Engine, in *engine.Tx) bool {
			if in != nil {
				return true // a Tx does not say
			}
			got, err := e.ActiveDeployment(ctx)
			return err == nil && got == id
		}
	}
	waiting := func(n int) func(*engine.Engine, *engine.Tx) bool {
		return func(e *engine.Engine, in *engine.Tx) bool {
			if in != nil {
				return true
			}
			for _, err := range e.Signals(ctx, "s") {
				if n--; err != nil {
					return false
				}
			}
			return n == 0
		}
	}
	admit := func(id string, start *engine.StartRequest) func(*engine.Tx) error {
		return func(in *engine.Tx) error {
			updateID := "x"
			return in.AdmitUpdate(ctx, &engine.UpdateRequest{WorkflowID: id, Start: start, Update: "move", ID: &updateID, Input: 1})
		}
	}
	updates := func(id string, n int) func(*engine.Engine, *engine.Tx) bool {
		return func(e *engine.Engine, in *engine.Tx) bool {
			if in != nil {
				return true // a Tx does not say
			}
			page, err := e.Store().Scan(ctx, keys.UpdatesOf(id))
			return err == nil && len(page) == n
		}
	}
	startN := func(c engine.Client) error { _, err := wf.Start(ctx, c, "n", ""); return err }
	sendX := func(c engine.Client) error {
		_, err := yes.Send(ctx, c, "s", "ann", &signal.Options{ID: "x"})
		return err
	}
	cancelC := func(c engine.Client) error { return c.Cancel(ctx, "c", audit) }
	labelL := func(in *engine.Tx) error { return in.Label(ctx, "l", map[string]string{"team": "blue"}, audit) }
	activate := func(id string) func(*engine.Tx) error {
		return func(in *engine.Tx) error { return in.Activate(ctx, id, audit) }
	}
	exists := func(engine.Info) bool { return true }
	return []verb{
		{name: "start", do: func(in *engine.Tx) error { return startN(in) }, seen: info("n", exists)},
		{name: "start again", do: func(in *engine.Tx) error { return startN(in) }, seen: info("n", exists), disturb: label("n"), nothing: true},
		{name: "signal", do: func(in *engine.Tx) error { return sendX(in) }, seen: waiting(1), disturb: label("s")},
		{name: "signal again", do: func(in *engine.Tx) error { return sendX(in) }, seen: waiting(1), nothing: true},
		{name: "admit update", do: admit("s", nil), seen: updates("s", 1), disturb: label("s")},
		{name: "admit update again", do: admit("s", nil), seen: updates("s", 1), disturb: label("s"), nothing: true},
		{name: "admit update with start", do: admit("", &engine.StartRequest{Workflow: "staged", ID: "u", Input: ""}), seen: updates("u", 1)},
		{name: "admit update with start again", do: admit("", &engine.StartRequest{Workflow: "staged", ID: "u", Input: ""}), seen: updates("u", 1), disturb: label("u"), nothing: true},
		{name: "clear signal", do: func(in *engine.Tx) error { return in.ClearSignal(ctx, "s", "yes", "x", audit) }, seen: waiting(0), disturb: label("s")},
		{name: "cancel", do: func(in *engine.Tx) error { return cancelC(in) }, seen: info("c", func(i engine.Info) bool { return i.Cancel != nil }), disturb: label("c")},
		{name: "cancel again", do: func(in *engine.Tx) error { return cancelC(in) }, seen: info("c", func(i engine.Info) bool { return i.Cancel != nil }), disturb: label("c"), nothing: true},
		{name: "label", do: labelL, seen: info("l", func(i engine.Info) bool { return i.Labels["team"] == "blue" }), disturb: label("l")},
		{name: "label again", do: labelL, seen: info("l", func(i engine.Info) bool { return i.Labels["team"] == "blue" }), disturb: label("l"), nothing: true},
		{name: "terminate", do: func(in *engine.Tx) error { return in.Terminate(ctx, "t", audit) }, seen: info("t", func(i engine.Info) bool { return i.Status == checkpoint.StatusCancelled }), disturb: label("t")},
		{name: "resume", do: func(in *engine.Tx) error { return in.Resume(ctx, "f", audit) }, seen: info("f", func(i engine.Info) bool { return i.Status == checkpoint.StatusRunning }), disturb: label("f")},
		{name: "reset", do: func(in *engine.Tx) error { return in.Reset(ctx, "d", "1", audit) }, seen: info("d", func(i engine.Info) bool { return i.Status == checkpoint.StatusRunning }), disturb: label("d")},
		{name: "resolve", do: func(in *engine.Tx) error {
			return in.Resolve(ctx, "o", "1", activity.Failed("it never came"), audit)
		}, seen: func(e *engine.Engine, in *engine.Tx) bool {
			return in != nil || strings.Contains(fmt.Sprintf("%+v", recordIn(e.Store(), "order/42")), "never came")
		}, disturb: label("o")},
		{name: "activate", do: activate(blue), seen: active(blue), disturb: func(e *engine.Engine) error { return e.Activate(ctx, "other", audit) }},
		{name: "activate the active", do: activate(blue), seen: active(blue), disturb: func(e *engine.Engine) error { return e.Activate(ctx, "other", audit) }},
		{name: "activate the next", do: activate(green), seen: active(green)},
		{name: "rollback", do: func(in *engine.Tx) error { return in.Rollback(ctx, audit) }, seen: active(blue)},
	}
}

// recordIn is the record of an activity of o, or none.
func recordIn(s storage.Storage, key string) string {
	raw, err := s.Get(ctx, keys.Activity("o", "charge", "1", key))
	if err != nil {
		return ""
	}
	return string(raw)
}

// prepare leaves workflows for stagedVerbs, and no engine.
func prepare(t *testing.T, s storage.Storage) *engine.Engine {
	t.Helper()
	fails := flow("fails", func(*engine.Run) (string, error) { return "", errBroke })
	done := flow("done", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Millisecond) })
	asks := asking("asks")
	p := boot(t, s, fails, done, asks)
	result(t, start(t, done, p, "d", ""))
	start(t, asks, p, "o", "")
	if _, err := soon(start(t, fails, p, "f", "")); err == nil {
		t.Fatal("it did not fail")
	}
	asksFor(t, p)
	p.stop(t)
	e := made(t, s, asks)
	t.Cleanup(func() { e.Close() })
	for _, id := range []string{"s", "c", "l", "t"} {
		start(t, flow("staged", nil2), e, id, "")
	}
	return e
}

// What a Tx stages is seen in it. It takes effect if the host commits, and leaves nothing if the
// host does not. If what it rests on changes before the commit, the commit is refused, also if
// the call was to write nothing.
func TestEveryVerbIsStaged(t *testing.T) {
	onAllTransactions(t, func(t *testing.T, s storage.Storage, begin func(testing.TB) hostTx, staged bool) {
		e := prepare(t, s)
		for _, v := range stagedVerbs() {
			t.Run(v.name, func(t *testing.T) {
				before := contents(t, s)
				tx := begin(t)
				in := e.In(tx)
				if err := v.do(in); err != nil {
					t.Fatal(err)
				}
				if !v.seen(e, in) {
					t.Error("it is not seen in the transaction")
				}
				tx.rollback()
				if after := contents(t, s); !maps.Equal(before, after) {
					t.Error("something is left of what the host did not commit")
				}
				if staged && v.disturb != nil {
					tx := begin(t)
					if err := v.do(e.In(tx)); err != nil {
						t.Fatal(err)
					}
					if err := v.disturb(e); err != nil {
						t.Fatal(err)
					}
					before = contents(t, s)
					if err := tx.commit(); !errors.Is(err, storage.ErrConflict) {
						t.Errorf("what it rests on has changed: got %v, want ErrConflict", err)
					}
				}
				tx = begin(t)
				if err := v.do(e.In(tx)); err != nil {
					t.Fatal(err)
				}
				if err := tx.commit(); err != nil {
					t.Fatal(err)
				}
				if !v.seen(e, nil) {
					t.Error("it was committed, and has no effect")
				}
				if after := contents(t, s); v.nothing && !maps.Equal(before, after) {
					t.Error("it writes something")
				}
			})
		}
	})
}

// The answer to a signal that was sent before rests on the record of its acceptance.
func TestStagedRepetitionOfASignalRestsOnItsAcceptance(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		e := made(t, s)
		defer e.Close()
		start(t, flow("staged", nil2), e, "s", "")
		send := func(c engine.Client) {
			t.Helper()
			if _, err := yes.Send(ctx, c, "s", "ann", &signal.Options{ID: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		send(e)
		tx := staging(s)
		send(e.In(tx))
		if err := s.Commit(ctx, storage.Batch{Ops: []storage.Op{storage.Delete(keys.Accepted("s", "yes", "x"))}}); err != nil {
			t.Fatal(err)
		}
		if err := tx.commit(); !errors.Is(err, storage.ErrConflict) {
			t.Errorf("the acceptance was forgotten meanwhile: got %v, want ErrConflict", err)
		}
	})
}

// What is refused in a Tx stages nothing, and has the same error as outside.
func TestRefusedVerbsStageNothing(t *testing.T) {
	onAllTransactions(t, func(t *testing.T, s storage.Storage, begin func(testing.TB) hostTx, _ bool) {
		e := prepare(t, s)
		before := contents(t, s)
		tx := begin(t)
		in := e.In(tx)
		for what, c := range map[string]struct {
			err, want error
		}{
			"rollback to nothing":   {in.Rollback(ctx, audit), engine.ErrNotApplicable},
			"resume of one running": {in.Resume(ctx, "s", audit), engine.ErrNotApplicable},
			"no such operation":     {in.Resolve(ctx, "s", "1", activity.Failed("no"), audit), engine.ErrNotApplicable},
			"no such signal":        {in.ClearSignal(ctx, "s", "yes", "none", audit), engine.ErrNotApplicable},
			"no such workflow":      {in.Terminate(ctx, "none", audit), engine.ErrNotFound},
			"one that has ended":    {in.Terminate(ctx, "f", audit), engine.ErrTerminal},
			"nobody":                {in.Activate(ctx, "blue", engine.Actor{}), engine.ErrInvalid},
			"no label":              {in.Label(ctx, "s", nil, audit), engine.ErrInvalid},
			"update of none":        {in.AdmitUpdate(ctx, &engine.UpdateRequest{WorkflowID: "none", Update: "move"}), engine.ErrNotFound},
			"update of an ended":    {in.AdmitUpdate(ctx, &engine.UpdateRequest{WorkflowID: "f", Update: "move"}), engine.ErrTerminal},
			"start of another":      {in.AdmitUpdate(ctx, &engine.UpdateRequest{Start: &engine.StartRequest{Workflow: "other", ID: "s"}, Update: "move"}), engine.ErrExists},
		} {
			if !errors.Is(c.err, c.want) {
				t.Errorf("%s: got %v, want %v", what, c.err, c.want)
			}
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		if after := contents(t, s); !maps.Equal(before, after) {
			t.Error("something was staged")
		}
	})
}

// Several verbs in one stage are one commit.
func TestStagedVerbsAreOneCommit(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		e := prepare(t, s)
		tx := staging(s)
		in := e.In(tx)
		wf := flow("staged", nil2)
		start(t, wf, in, "n", "")
		tell(t, yes, in, "n", "ann")
		for _, err := range []error{
			in.Label(ctx, "n", map[string]string{"team": "blue"}, audit),
			in.Cancel(ctx, "n", audit),
			in.Activate(ctx, "blue", audit),
			in.Activate(ctx, "green", audit),
			in.Rollback(ctx, audit),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		i := describe(t, e, "n")
		if active, err := e.ActiveDeployment(ctx); active != "blue" || err != nil || i.Cancel == nil || i.Labels["team"] != "blue" {
			t.Errorf("got %q, %v, %+v", active, err, i)
		}
		p := boot(t, s, flow("staged", func(*engine.Run) (string, error) { return "ended", nil }))
		if got, err := soon(wf.Handle(p, "n")); got != "ended" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// A ledger and an engine on one stage are one commit: an effect that starts a workflow happens with
// its receipt, or neither. Of two that meet, one has a conflict and then gets the receipt. What
// fails leaves no claim.
func TestLedgerAndEngineInOneCommit(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		e := made(t, s)
		defer e.Close()
		ledger, err := idempotency.New(idempotency.Config{Storage: s, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer ledger.Close()
		key := idempotency.Key{SourceType: "POST /v1/runs", SourceID: "k", Action: "runs.create"}
		create := func(tx storage.Tx, id string, fails error) (idempotency.Receipt[string], error) {
			return idempotency.Do(ctx, ledger.In(tx), key, "input", func(ctx context.Context) (string, error) {
				_, err := flow("staged", nil2).Start(ctx, e.In(tx), id, "")
				return id, errors.Join(err, fails)
			})
		}
		there := func(id string) bool {
			_, err := e.Describe(ctx, id)
			return err == nil
		}

		broken := staging(s)
		if _, err := create(broken, "w-0", errBroke); !errors.Is(err, errBroke) {
			t.Errorf("one that fails: got %v, want its error", err)
		}
		if raw, err := broken.Get(ctx, keys.Claim("", key.SourceType, key.SourceID, key.Hash())); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("one that fails: its claim is staged: %q, %v", raw, err)
		}

		one, two := staging(s), staging(s)
		for id, tx := range map[string]storage.Tx{"w-1": one, "w-2": two} {
			if r, err := create(tx, id, nil); err != nil || r.Decision != idempotency.DecidedNew || r.Result != id {
				t.Fatalf("%s: %+v, %v", id, r, err)
			}
		}
		if there("w-1") || there("w-2") {
			t.Error("started before the commit")
		}
		if err := one.commit(); err != nil {
			t.Fatal(err)
		}
		if err := two.commit(); !errors.Is(err, storage.ErrConflict) {
			t.Errorf("the second with the key: got %v, want ErrConflict", err)
		}
		again := staging(s)
		if r, err := create(again, "w-3", nil); err != nil || r.Decision != idempotency.DecidedDuplicate || r.Result != "w-1" {
			t.Errorf("again: %+v, %v, want the first receipt", r, err)
		}
		if err := again.commit(); err != nil {
			t.Fatal(err)
		}
		if !there("w-1") || there("w-0") || there("w-2") || there("w-3") {
			t.Error("there is another workflow than w-1, or it is missing")
		}
	})
}

// Verbs that are staged are neither logged nor told: the host may roll back.
func TestStagedVerbsAreNotTold(t *testing.T) {
	s := new(memory.Store)
	prepare(t, s)
	var log lines
	var told heard
	e := made(t, s, asking("asks"), log.logger(), told.callbacks())
	defer e.Close()
	for _, v := range stagedVerbs() {
		tx := staging(s)
		if err := v.do(e.In(tx)); err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		if n := log.count("weft"); n > 0 {
			t.Fatalf("%s: %d lines were logged before the commit: %s", v.name, n, log.b.String())
		}
		if err := tx.commit(); err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
	}
	starting := func(id string) string { return "Starting {WorkflowID:" + id + " Workflow:staged Queue: Parent:}" }
	expect(t, "staged", told.list(), starting("n"), starting("n"), starting("u"), starting("u"))
}

// HTTP-31, HTTP-34: an activation and a rollback put the time into the deployment's own record, in
// the same commit. A record that is created meanwhile gets it too.
func TestActivationIsInTheDeploymentsRecord(t *testing.T) {
	onAllTransactions(t, func(t *testing.T, s storage.Storage, begin func(testing.TB) hostTx, staged bool) {
		e := made(t, s)
		defer e.Close()
		create := func(id string) {
			t.Helper()
			b, err := (&deployment.Record{ID: id, Manifest: []byte("{}"), CreatedBy: "ann"}).Create()
			if err == nil {
				err = s.Commit(ctx, b)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		activated := func(id string) int64 {
			t.Helper()
			d, err := deployment.Load(ctx, s, id)
			if err != nil || d.CreatedBy != "ann" {
				t.Fatalf("%s: %+v, %v", id, d, err)
			}
			return d.ActivatedAt
		}
		create("blue")
		activate(t, e, "blue")
		first := activated("blue")
		if first == 0 {
			t.Fatal("the activation is not in the record")
		}
		create("green")
		tx := begin(t)
		if err := e.In(tx).Activate(ctx, "green", audit); err != nil {
			t.Fatal(err)
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		if activated("green") == 0 || activated("blue") != first {
			t.Errorf("green: %d, blue: %d, want it in that of green alone", activated("green"), activated("blue"))
		}
		tx = begin(t)
		if err := e.In(tx).Rollback(ctx, audit); err != nil {
			t.Fatal(err)
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		if activated("blue") <= first {
			t.Errorf("the rollback: got %d, want a time after %d", activated("blue"), first)
		}
		if !staged {
			return
		}
		tx = begin(t)
		if err := e.In(tx).Activate(ctx, "red", audit); err != nil {
			t.Fatal(err)
		}
		create("red")
		if err := tx.commit(); !errors.Is(err, storage.ErrConflict) {
			t.Errorf("a record was created meanwhile: got %v, want ErrConflict", err)
		}
	})
}

// Poke has the engine find at once what was staged.
func TestPokeFindsWhatWasStaged(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		wf := flow("w", nil2)
		p := boot(t, s, wf, func(c *engine.Config) { c.PollInterval = time.Hour })
		time.Sleep(time.Minute)
		client := made(t, s)
		defer client.Close()
		client.Poke() // does nothing: it does not run
		tx := staging(s)
		h := start(t, wf, client.In(tx), "w", "")
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if i := describe(t, client, "w"); i.Status != checkpoint.StatusPending {
			t.Fatalf("found without a Poke: %+v", i)
		}
		p.Poke()
		time.Sleep(time.Second)
		if i := describe(t, client, "w"); i.Status != checkpoint.StatusCompleted {
			t.Errorf("after a Poke: %+v", i)
		}
		_ = h
	})
}

// The store of an engine is that of its Config, and a stage on it is one of the engine's. A single
// owner takes none.
func TestStageOnTheEnginesStore(t *testing.T) {
	s := new(memory.Store)
	e := made(t, &between{Storage: s})
	defer e.Close()
	for what, tx := range map[string]storage.Tx{"of Store": stage.New(e.Store()), "of what it wraps": stage.New(s)} {
		if err := e.In(tx).Activate(ctx, "blue", audit); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := e.In(stage.New(new(memory.Store))).Activate(ctx, "blue", audit); !errors.Is(err, engine.ErrNotApplicable) {
		t.Errorf("another store: got %v, want ErrNotApplicable", err)
	}
	own := made(t, new(memory.Store), func(c *engine.Config) { c.Ownership = engine.OwnershipSingleOwner })
	defer own.Close()
	in := own.In(stage.New(own.Store()))
	for what, err := range map[string]error{
		"Activate":    in.Activate(ctx, "blue", audit),
		"Rollback":    in.Rollback(ctx, audit),
		"Resume":      in.Resume(ctx, "w", audit),
		"Resolve":     in.Resolve(ctx, "w", "1", activity.Failed("no"), audit),
		"ClearSignal": in.ClearSignal(ctx, "w", "yes", "x", audit),
		"Label":       in.Label(ctx, "w", map[string]string{"a": "b"}, audit),
		"Terminate":   in.Terminate(ctx, "w", audit),
		"Cancel":      in.Cancel(ctx, "w", audit),
	} {
		if !errors.Is(err, engine.ErrNotApplicable) {
			t.Errorf("%s with a single owner: got %v, want ErrNotApplicable", what, err)
		}
	}
}

// The children of a workflow whose termination was staged are asked to stop after the commit.
func TestStagedTerminationReachesChildren(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := sharing{new(memory.Store)}
		kid := flow("kid", func(run *engine.Run) (string, error) { return "", run.Sleep(time.Hour) })
		wf := flow("w", func(run *engine.Run) (string, error) {
			return kid.AsChild(engine.ChildOptions{ID: "kid"}).Do(run, "")
		})
		p := boot(t, s, wf, kid)
		start(t, wf, p, "w", "")
		eventually(t, "the child runs", func() bool {
			i, err := p.Describe(ctx, "kid")
			return err == nil && i.Status == checkpoint.StatusRunning
		})
		tx := staging(p.Engine.Store())
		if err := p.In(tx).Terminate(ctx, "w", audit); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if i := describe(t, p, "kid"); i.Cancel != nil {
			t.Errorf("before the commit: %+v", i.Cancel)
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		p.Poke()
		eventually(t, "the child is asked to stop", func() bool { return describe(t, p, "kid").Status == checkpoint.StatusCancelled })
	})
}
