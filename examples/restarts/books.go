package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/client"
	"github.com/weft-go/weft/control/wire"
)

// Books have what the customers were told, and what was found afterwards.
type books struct {
	mu     sync.Mutex
	orders []*order
	active []string          // the keys of the activations that were answered
	last   string            // the deployment of the last one
	first  map[string][]byte // the first answer to each write
	count  struct{ answers, replays, lost int }
	found
}

// What was found wrong, each with the key of its order.
type found struct {
	duplicates []string // started more than once, or approved more than once
	lost       []string // answered, and not there
	changed    []string // answered in two ways
	unaudited  []string // answered, and not in the audit trail
}

func newBooks() *books { return &books{first: map[string][]byte{}} }

func (b *books) add(o *order) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orders = append(b.orders, o)
}

func (b *books) activated(key, deployment string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active, b.last = append(b.active, key), deployment
}

// String says what happened.
func (b *books) String() string {
	return fmt.Sprintf("%d orders, %d activations, %d answers to writes, %d of them to repetitions; %d requests without an answer; %d duplicates, %d lost, %d changed answers, %d writes without an audit row",
		len(b.orders), len(b.active), b.count.answers, b.count.replays, b.count.lost, len(b.duplicates), len(b.lost), len(b.changed), len(b.unaudited))
}

// verdict is an error if something is wrong, or if too little happened to tell.
func (b *books) verdict() error {
	for _, v := range []struct {
		what string
		all  []string
	}{{"duplicates", b.duplicates}, {"lost", b.lost}, {"changed answers", b.changed}, {"writes without an audit row", b.unaudited}} {
		if len(v.all) > 0 {
			return fmt.Errorf("violations: %d %s, such as %s", len(v.all), v.what, strings.Join(v.all[:min(len(v.all), 5)], ", "))
		}
	}
	if len(b.orders) == 0 || b.count.lost == 0 || b.count.replays == 0 {
		return fmt.Errorf("too little happened: %s", b)
	}
	return nil
}

// A witness is a transport that tells the answers to the books.
type witness struct {
	http.RoundTripper
	books *books
}

func (w witness) RoundTrip(q *http.Request) (*http.Response, error) {
	id := writeOf(q)
	a, err := w.RoundTripper.RoundTrip(q)
	if err != nil {
		w.books.answered("", nil, false)
		return nil, err
	}
	body, err := io.ReadAll(a.Body)
	a.Body.Close()
	if err != nil {
		w.books.answered("", nil, false)
		return nil, err
	}
	a.Body = io.NopCloser(bytes.NewReader(body))
	if id != "" && a.StatusCode < http.StatusMultipleChoices {
		w.books.answered(id, fmt.Appendf(nil, "%d %s", a.StatusCode, body), a.Header.Get("Idempotent-Replayed") == "true")
	}
	return a, nil
}

// writeOf returns what two requests have in common that must be answered alike: the idempotency key
// or, of a signal, its run. It is "" for others.
func writeOf(q *http.Request) string {
	if key := q.Header.Get("Idempotency-Key"); key != "" {
		return key
	}
	if strings.Contains(q.URL.Path, "/signals/") {
		return q.URL.Path
	}
	return ""
}

// answered notes the answer to a write. An id of "" is a request without an answer.
func (b *books) answered(id string, answer []byte, replayed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id == "" {
		b.count.lost++
		return
	}
	b.count.answers++
	if replayed {
		b.count.replays++
	}
	first, known := b.first[id]
	if !known {
		b.first[id] = answer
	} else if !bytes.Equal(first, answer) {
		b.changed = append(b.changed, id)
	}
}

// A view is what the control plane says in the end.
type view struct {
	runs    map[string][]weft.Info // by the key of their order
	left    map[string]int         // signals that a run has not received
	output  map[string]string      // who has approved a run
	created map[string]int         // audit rows of starts that were no repetitions, by their idempotency key
	sent    map[string]int         // audit rows of signals, by their run
	active  string                 // the active deployment
}

// compare waits until all orders have ended, and compares what the control plane says with the books.
func (b *books) compare(ctx context.Context, c *client.Client) error {
	for _, s := range []checkpoint.Status{checkpoint.StatusPending, checkpoint.StatusRunning} {
		for end := time.Now().Add(2 * time.Minute); ; {
			p, err := c.Page(ctx, weft.Filter{Status: s, Deployment: served}, weft.PageRequest{Limit: 1})
			if err != nil {
				return err
			}
			if len(p.Data) == 0 && !p.HasMore {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("run %s is %s after two minutes", p.Data[0].ID, s)
			}
			if !sleep(ctx, 100*time.Millisecond, nil) {
				return ctx.Err()
			}
		}
	}
	v, err := look(ctx, c, b.orders)
	if err != nil {
		return err
	}
	changed := b.changed
	b.found = examine(b.orders, b.active, b.last, v)
	b.changed = append(b.changed, changed...)
	return nil
}

// look asks the control plane.
func look(ctx context.Context, c *client.Client, orders []*order) (v view, err error) {
	v = view{map[string][]weft.Info{}, map[string]int{}, map[string]string{}, map[string]int{}, map[string]int{}, ""}
	active, err := c.ActiveDeployment(ctx)
	if err != nil {
		return v, err
	}
	v.active = active.DeploymentID
	for i, err := range c.List(ctx, weft.Filter{}) {
		if err != nil {
			return v, err
		}
		v.runs[i.Labels["key"]] = append(v.runs[i.Labels["key"]], i)
	}
	for _, o := range orders {
		if !o.approves || o.deployment != served {
			continue
		}
		signals, err := c.Signals(ctx, o.run, weft.PageRequest{})
		if errors.Is(err, weft.ErrNotFound) {
			continue // it is lost
		}
		if err != nil {
			return v, err
		}
		v.left[o.run] = len(signals.Data)
		run, err := c.Get(ctx, o.run)
		if err != nil {
			return v, err
		}
		var receipt struct{ ApprovedBy string }
		if len(run.Output) > 0 {
			if err := json.Unmarshal(run.Output, &receipt); err != nil {
				return v, err
			}
		}
		v.output[o.run] = receipt.ApprovedBy
	}
	first := func(r wire.AuditRow) {
		if !r.Metadata.Deduped {
			v.created[r.Metadata.IdempotencyKey]++
		}
	}
	for action, note := range map[string]func(wire.AuditRow){
		"runs.create":          first,
		"deployments.activate": first,
		"signals.send":         func(r wire.AuditRow) { v.sent[r.Metadata.RunID]++ },
	} {
		for r := (weft.PageRequest{Limit: 1000}); ; {
			p, err := c.Audit(ctx, client.AuditFilter{Action: action, Result: "success"}, r)
			if err != nil {
				return v, err
			}
			for _, row := range p.Data {
				note(row)
			}
			if r.Cursor = p.Next; !p.HasMore {
				break
			}
		}
	}
	return v, nil
}

// examine says what is wrong. activations are the keys of those that were answered, and last is the
// deployment of the last one.
func examine(orders []*order, activations []string, last string, v view) (f found) {
	if v.active != last {
		f.lost = append(f.lost, "the activation of "+last)
	}
	for _, key := range activations {
		switch n := v.created[key]; {
		case n == 0:
			f.unaudited = append(f.unaudited, key)
		case n > 1:
			f.duplicates = append(f.duplicates, key+" in the audit trail")
		}
	}
	known := map[string]bool{}
	for _, o := range orders {
		known[o.key] = true
		runs := v.runs[o.key]
		switch {
		case len(runs) > 1:
			f.duplicates = append(f.duplicates, o.key)
		case !slices.ContainsFunc(runs, o.isRun):
			f.lost = append(f.lost, o.key)
		}
		switch n := v.created[o.key]; {
		case n == 0:
			f.unaudited = append(f.unaudited, o.key)
		case n > 1:
			f.duplicates = append(f.duplicates, o.key+" in the audit trail")
		}
		if !o.approves {
			continue
		}
		if v.sent[o.run] == 0 {
			f.unaudited = append(f.unaudited, "approval of "+o.key)
		}
		if o.deployment != served {
			continue // nobody has received it
		}
		if v.left[o.run] > 0 {
			f.duplicates = append(f.duplicates, "approval of "+o.key)
		}
		if v.output[o.run] != o.key {
			f.lost = append(f.lost, "approval of "+o.key)
		}
	}
	for key := range v.runs {
		if !known[key] {
			f.duplicates = append(f.duplicates, "a run with the key "+key)
		}
	}
	return f
}

// isRun reports whether a run is the one that the customer was told of. On the served deployment it
// has completed, and on the other one it waits.
func (o *order) isRun(i weft.Info) bool {
	want := checkpoint.StatusCompleted
	if o.deployment != served {
		want = checkpoint.StatusPending
	}
	return i.ID == o.run && i.Deployment == o.deployment && i.Status == want
}
