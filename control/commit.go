package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/canon"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/storage"
)

// commitPatience is how long one change is decided anew, or its outcome settled.
const commitPatience = 10 * time.Second

// mutate makes one change: apply stages it on tx, with conditions on what it has decided by
// (Engine.In(tx), tx.Commit), and the batch also has the audit row and, if the call has an idempotency
// key, the answer. Nothing of it is in the store unless all is.
//
// apply is called again from fresh reads if somebody else has changed what it read, for 10 s. So it
// has no effects beside those on tx, and it sets call.note anew. An error of apply is returned
// unchanged, and nothing is written.
//
// If the answer to this key was given before, apply is not called, and mutate returns that answer.
func (c *call) mutate(ctx context.Context, apply func(ctx context.Context, tx storage.Tx) (answer, error)) (answer, error) {
	// A client that goes away does not stop a change that has begun.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitPatience)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		a, again, err := c.attempt(ctx, apply)
		if !again {
			return a, err
		}
		if !backoff.Wait(ctx, pause) {
			return answer{}, busy(err)
		}
	}
}

// attempt makes one attempt of mutate. It is to be made again if somebody else has changed what was
// read.
func (c *call) attempt(ctx context.Context, apply func(ctx context.Context, tx storage.Tx) (answer, error)) (a answer, again bool, _ error) {
	c.note = note{}
	tx := stage.New(c.store)
	a, err := c.staged(ctx, tx, apply)
	switch {
	case errors.Is(err, storage.ErrConflict) || errors.Is(err, stage.ErrStale) || errors.Is(err, idempotency.ErrInProgress):
		return answer{}, true, err
	case err != nil:
		return answer{}, false, c.explain(err, false) // nothing was sent to the store
	case c.note.deduped:
		return a, false, nil
	}
	row := c.newAuditRow(a.code(), "")
	put, err := row.put(c.config.Home)
	if err == nil {
		err = tx.Add(ctx, storage.Batch{If: []storage.Condition{storage.Absent(put.Key)}, Ops: []storage.Op{put}})
	}
	var b storage.Batch
	if err == nil {
		b, err = tx.Batch()
	}
	if err != nil {
		return answer{}, false, c.explain(err, false)
	}
	err = settle.Commit(ctx, c.store, b, nil, func(ctx context.Context) (bool, error) {
		return holdsAll(ctx, c.store, []storage.Op{put})
	})
	switch {
	case err == nil:
		c.audited = true
		c.engine.Poke()
		return a, false, nil
	case errors.Is(err, storage.ErrConflict):
		return answer{}, true, err
	}
	return answer{}, false, c.explain(err, true)
}

// staged calls apply on tx: for a call with an idempotency key, inside the ledger.
func (c *call) staged(ctx context.Context, tx *stage.Tx, apply func(ctx context.Context, tx storage.Tx) (answer, error)) (answer, error) {
	if c.idempotencyKey == "" {
		return apply(ctx, tx)
	}
	request, err := c.fingerprint()
	if err != nil {
		return answer{}, err
	}
	var failed error // of apply: the ledger wraps it
	effect := &idempotency.Effect[json.RawMessage, sealed]{
		Name: "request", OnAbandoned: idempotency.TakeOver, Wait: -1, Retention: c.config.IdempotencyTTL,
		Run: func(ctx context.Context, _ json.RawMessage) (sealed, error) {
			a, err := apply(ctx, tx)
			if err == nil {
				var s sealed
				if s, err = c.seal(a); err == nil {
					return s, nil
				}
			}
			failed = err
			return sealed{}, activity.NoEffect(err)
		},
	}
	r, err := effect.Do(ctx, c.ledger.In(tx), idempotency.Key{
		Tenant:     c.who.tenant(),
		SourceType: c.op.method + " " + c.op.path,
		SourceID:   c.idempotencyKey,
	}, request)
	switch {
	case failed != nil:
		return answer{}, failed
	case err != nil:
		return answer{}, err
	}
	c.note.deduped = r.Decision == idempotency.DecidedDuplicate
	if c.note.deduped {
		c.note.runID = r.Result.RunID
	}
	return r.Result.answer(c.note.deduped), nil
}

// fingerprint is what requests with one key must have in common: the operation, and its parameters as
// they were sent.
func (c *call) fingerprint() (json.RawMessage, error) {
	canonical, err := canon.JSON(c.raw)
	if err != nil {
		return nil, invalid(issue{"", err.Error()})
	}
	f := append([]byte(`{"operation":`), quoted(c.op.name)...)
	f = append(append(f, `,"params":`...), canonical...)
	return append(f, '}'), nil
}

// A sealed is an answer as the ledger keeps it.
type sealed struct {
	Status   int             `json:"status"`
	Body     json.RawMessage `json:"body,omitempty"`
	Location string          `json:"location,omitempty"`
	RunID    string          `json:"runId,omitempty"`
}

func (c *call) seal(a answer) (sealed, error) {
	s := sealed{Status: a.code(), Location: a.header.Get("Location"), RunID: c.note.runID}
	body, err := a.json()
	s.Body = body
	if err != nil {
		return s, err
	}
	kept, err := json.Marshal(s)
	if err == nil && len(kept) > c.mostSealed() {
		err = newProblem(http.StatusRequestEntityTooLarge, "too_large", "The answer is too large to be kept under an idempotency key. Nothing was changed.")
	}
	return s, err
}

// mostSealed is how large an answer may be that the ledger keeps, in bytes of JSON.
func (p *Plane) mostSealed() int {
	most := idempotency.DefaultMaxResult
	if b := p.store.Capabilities().MaxBatch.Bytes; b > 0 {
		most = min(most, b/4) // as for every ledger
	}
	return most
}

func (s sealed) answer(again bool) answer {
	a := answer{status: s.Status, header: http.Header{}}
	if s.Body != nil {
		a.body = s.Body
	}
	if s.Location != "" {
		a.header.Set("Location", s.Location)
	}
	if again {
		a.header.Set("Idempotent-Replayed", "true")
	}
	return a
}
