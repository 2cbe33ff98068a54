package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/client"
	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

// What Weft's own client sends and gets is documented, of each of its methods.
func TestGoClient(t *testing.T) {
	onStores(t, func(t *testing.T, store storage.Storage) {
		artifacts, err := control.Dir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		s := serve(t, store, func(c *control.Config) { c.Artifacts = artifacts })
		c, err := client.New(s.url, admin, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		by := weft.Actor{Name: "ann", Reason: "because"}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		page := weft.PageRequest{Limit: 10}
		other := &signal.Signal[json.RawMessage]{Name: "other"} // for which checkout does not wait

		order, err := checkout.With(engine.StartOptions{Labels: map[string]string{"customer": "ann"}}).Start(ctx, c, "order-42", json.RawMessage(`{"cents":4900}`))
		must(err)
		if _, err := c.Describe(ctx, order.ID()); err != nil {
			t.Error(err)
		}
		run, err := c.Get(ctx, "order-42")
		must(err)
		if string(run.Input) != `{"cents":4900}` || run.Labels["customer"] != "ann" {
			t.Errorf("the run is %+v", run)
		}
		_, err = other.Send(ctx, c, "order-42", json.RawMessage(`{"receipt":"r1"}`), &signal.Options{ID: "evt_1"})
		must(err)
		signals, err := c.Signals(ctx, "order-42", page)
		must(err)
		if len(signals.Data) != 1 || signals.Data[0].ID != "evt_1" {
			t.Errorf("the signals are %+v", signals)
		}
		s.tear("order-42", "other", "evt_1")
		_, err = other.Send(ctx, c, "order-42", json.RawMessage(`{"receipt":"r1"}`), &signal.Options{ID: "evt_1"})
		e, isError := errors.AsType[*client.Error](err) // SIG-48
		torn, isTorn := errors.AsType[*signal.IndeterminateError](err)
		if !isError || !isTorn || e.Code != "SignalAcceptanceIndeterminate" || e.Retry != "never" || torn.WorkflowID != "order-42" || torn.SignalID != "evt_1" {
			t.Errorf("a torn signal: %v", err)
		}
		must(c.ClearSignal(ctx, "order-42", "other", "evt_1", by))
		must(c.Cancel(ctx, "order-42", by))
		if _, err := order.Result(ctx); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("the result is %v", err)
		}
		events, err := c.Events(ctx, "order-42", page)
		must(err)
		if len(events.Data) == 0 {
			t.Error("there are no events")
		}
		for range c.List(ctx, weft.Filter{Workflow: "checkout", Labels: map[string]string{"customer": "ann"}}) {
		}
		runs, err := c.Page(ctx, weft.Filter{Status: "cancelled"}, page)
		must(err)
		if len(runs.Data) != 1 {
			t.Errorf("the runs are %+v", runs)
		}
		if err := c.Resume(ctx, "order-42", by); !errors.Is(err, engine.ErrTerminal) {
			t.Errorf("a cancelled run is resumed: %v", err)
		}
		if err := c.Resolve(ctx, "order-42", "1", client.Answer{Outcome: client.Completed, Result: json.RawMessage(`"r1"`)}, by); !errors.Is(err, engine.ErrTerminal) && !errors.Is(err, engine.ErrNotApplicable) {
			t.Errorf("an operation of a cancelled run is resolved: %v", err)
		}
		must(c.Reset(ctx, "order-42", "", by))
		if err := c.Reset(ctx, "order-42", "77", by); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("a reset to an operation that there is not: %v", err)
		}
		must(c.Cancel(ctx, "order-42", by))
		if _, err := order.Result(ctx); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("the result is %v", err)
		}
		bulk := weft.Bulk{Do: weft.BulkReset, Filter: weft.Filter{Workflow: "checkout", Status: "cancelled"}, Rate: activity.Rate{Count: 100, Per: time.Second}}
		must(c.StartBulk(ctx, "back to the start", bulk, by))
		must(c.StartBulk(ctx, "back to the start", bulk, by))
		if err := c.StartBulk(ctx, "back to the start", weft.Bulk{Do: weft.BulkCancel, Filter: bulk.Filter}, by); !errors.Is(err, engine.ErrMismatch) {
			t.Errorf("another bulk with this id: %v", err)
		}
		eventually(t, "the bulk ends", func() bool {
			i, err := c.Bulk(ctx, "back to the start")
			must(err)
			return !i.EndedAt.IsZero() && i.Done == 1 && i.Refused == 0
		})
		must(c.StopBulk(ctx, "back to the start", by))
		if err := c.StopBulk(ctx, "none", by); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("the stop of no bulk: %v", err)
		}
		if bulks, err := c.Bulks(ctx, page); err != nil || len(bulks.Data) != 1 || bulks.Data[0].Bulk.Do != weft.BulkReset {
			t.Errorf("the bulks are %+v, %v", bulks, err)
		}
		must(c.Cancel(ctx, "order-42", by))
		if _, err := order.Result(ctx); !errors.Is(err, engine.ErrCancelled) {
			t.Errorf("the result is %v", err)
		}
		must(c.Reset(ctx, "order-42", "", by))
		must(c.Terminate(ctx, "order-42", by))
		if err := c.Terminate(ctx, "order-42", by); !errors.Is(err, engine.ErrTerminal) {
			t.Errorf("what was terminated is terminated: %v", err)
		}
		must(c.Purge(ctx, "order-42", by))
		if _, err := c.Describe(ctx, "order-42"); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("a purged run: %v", err)
		}

		_, err = moving.Start(ctx, c, "order-43", nil)
		must(err)
		to, err := move.Call(ctx, c, "order-43", json.RawMessage(`"x"`), &engine.UpdateOptions{ID: "u"})
		must(err)
		if string(to) != `"x"` {
			t.Errorf("the answer is %s", to)
		}
		if _, err := move.Call(ctx, c, "order-43", nil, nil); !errors.Is(err, engine.ErrRejected) || !errors.Is(err, errCard) {
			t.Errorf("a refused update: %v", err)
		}
		_, err = moved.Await(ctx, c, "order-43", func(to json.RawMessage) bool { return string(to) == `"x"` })
		must(err)
		_, err = moved.Read(ctx, c, "order-43")
		must(err)
		var names []string
		for v, err := range c.Values(ctx, "order-43") {
			must(err)
			names = append(names, v.Name)
		}
		if len(names) != 2 {
			t.Errorf("the values are %v", names)
		}

		_, err = c.CreateDeployment(ctx, json.RawMessage(`{"deploymentId":"shop-7"}`), nil)
		must(err)
		_, err = c.UploadDeployment(ctx, json.RawMessage(`{"deploymentId":"shop-8"}`), []byte("bytes"))
		must(err)
		_, err = c.Activate(ctx, "shop-7", client.IfNoneActive(), by)
		must(err)
		_, err = c.ActiveDeployment(ctx)
		must(err)
		_, err = c.Deployment(ctx, "shop-7")
		must(err)
		deployments, err := c.Deployments(ctx, page)
		must(err)
		if len(deployments.Data) != 2 {
			t.Errorf("the deployments are %+v", deployments)
		}

		id := "spare"
		made, err := c.CreateKey(ctx, wire.CreateKey{KeyID: &id, Scopes: []wire.Scope{wire.ScopeRunsRead}})
		must(err)
		rotated, err := c.RotateKey(ctx, id, wire.RotateKey{})
		must(err)
		if made.Secret == rotated.Secret {
			t.Error("the secret is the same")
		}
		must(c.RevokeKey(ctx, id, "", ""))
		keys, err := c.Keys(ctx, page)
		must(err)
		if len(keys.Data) < 2 {
			t.Errorf("the keys are %+v", keys)
		}
		rows, err := c.Audit(ctx, client.AuditFilter{Action: "runs.create", RunID: "order-42"}, page)
		must(err)
		if len(rows.Data) != 1 {
			t.Errorf("the rows are %+v", rows)
		}
		engines, err := c.Engines(ctx, page)
		must(err)
		if len(engines.Data) != 1 {
			t.Errorf("the engines are %+v", engines)
		}
		_, err = c.Ownership(ctx)
		must(err)
		_, err = c.Ready(ctx)
		must(err)
	})
}
