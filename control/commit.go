package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/internal/canon"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/stage"
	"github.com/weft-go/weft/storage"
)

// commitPatience is how long one change is decided anew, or its outcome settled.
const commitPatience = 10 * time.Second

// mutate makes one change: apply stages it on tx, with conditions on what it has decided by
// (Engine.In(tx), tx.Commit; tx is a *stage.Tx), and the batch also has the audit row and, if the call has an idempotency
// key, the answer. Nothing of it is in the store unless all is.
//
// apply is called again from fresh reads if somebody else has changed what it read, for 10 s. So it
// has no effects beside those on tx, and it sets call.note anew. An error of apply is returned
// unchanged, and nothing is written.
//
// If the answer to this key was given before, mutate returns that answer. apply may have been called in vain: the
// first attempt presumes that the key is a new one, which the commit finds out.
func (c *call) mutate(ctx context.Context, apply func(ctx context.Context, tx storage.Tx) (answer, error)) (answer, error) {
	// A client that goes away does not stop a change that has begun.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitPatience)
	defer cancel()
	presume := c.idempotencyKey != ""
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		a, again, err := c.attempt(ctx, apply, presume)
		if !again {
			return a, err
		}
		if presume {
			presume = false
			continue
		}
		if !backoff.Wait(ctx, pause) {
			return answer{}, busy(err)
		}
	}
}

// attempt makes one attempt of mutate. It is to be made again if somebody else has changed what was
// read, or if it presumed wrongly that the idempotency key is a new one: what would be refused then is not
// committed, and says nothing.
func (c *call) attempt(ctx context.Context, apply func(ctx context.Context, tx storage.Tx) (answer, error), presume bool) (a answer, again bool, _ error) {
	c.note, c.presumes = note{}, presume
	tx := stage.New(c.store)
	if presume {
		tx.Presume(c.claim(), nil)
	}
	a, err := c.staged(ctx, tx, apply)
	switch {
	case err != nil && presume, errors.Is(err, storage.ErrConflict) || errors.Is(err, stage.ErrStale) || errors.Is(err, idempotency.ErrInProgress):
		return answer{}, true, err
	case err != nil:
		return answer{}, false, c.explain(err, false) // nothing was sent to the store
	case c.note.deduped:
		return a, false, nil
	}
	row := c.newAuditRow(a.code(), "")
	put, err := row.put(c.home.tenant())
	if err == nil {
		err = tx.Add(ctx, storage.Batch{If: []storage.Condition{storage.Absent(put.Key)}, Ops: []storage.Op{put}})
	}
	var b storage.Batch
	if err == nil {
		b, err = tx.Batch()
	}
	if err != nil {
		return answer{}, presume, c.explain(err, false)
	}
	landed := func(ctx context.Context) (bool, error) { return holdsAll(ctx, c.store, []storage.Op{put}) }
	given := false // the key is no new one
	settling, stop := context.WithCancel(ctx)
	defer stop()
	err = settle.Commit(settling, c.store, b, func(error) {
		// A store that is full takes nothing, and has the answer nevertheless.
		if given = presume && c.given(ctx, landed); given {
			stop()
		}
	}, landed)
	switch {
	case given:
		return answer{}, true, err
	case err == nil:
		c.audited = true
		c.engine.Poke()
		return a, false, nil
	case errors.Is(err, storage.ErrConflict):
		return answer{}, true, err
	}
	return answer{}, false, c.explain(err, true)
}

// claim is where the ledger has the idempotency key.
func (c *call) claim() []byte {
	k := c.ledgerKey()
	return keys.Claim(k.Tenant, k.SourceType, k.SourceID, k.Hash())
}

func (c *call) ledgerKey() idempotency.Key {
	return idempotency.Key{Tenant: c.who.tenant(), SourceType: c.op.method + " " + c.op.path, SourceID: c.idempotencyKey, Action: keyedAction}
}

// keyedAction is the Action of the keys of all operations: their SourceType tells them apart.
const keyedAction = "request"

// given reports whether the store has the idempotency key, and not from the attempt that has landed if landed
// says so.
func (c *call) given(ctx context.Context, landed func(context.Context) (bool, error)) bool {
	if _, err := c.store.Get(ctx, c.claim()); err != nil {
		return false
	}
	mine, err := landed(ctx)
	return err == nil && !mine
}

// staged calls apply on tx: for a call with an idempotency key, inside the ledger.
func (c *call) staged(ctx context.Context, tx *stage.Tx, apply func(ctx context.Context, tx storage.Tx) (answer, error)) (answer, error) {
	if c.idempotencyKey == "" {
		return apply(ctx, tx)
	}
	var (
		s      sealed
		failed error // of apply: the ledger wraps it
	)
	effect := &idempotency.Effect[json.RawMessage, json.RawMessage]{
		Name: keyedAction, OnAbandoned: idempotency.TakeOver, Wait: -1, Retention: c.keep,
		Run: func(ctx context.Context, _ json.RawMessage) (kept json.RawMessage, err error) {
			a, err := apply(ctx, tx)
			if err == nil {
				if s, kept, err = c.seal(a); err == nil {
					return kept, nil
				}
			}
			failed = err
			return nil, activity.NoEffect(err)
		},
	}
	r, err := effect.Do(ctx, c.ledger.In(tx), c.ledgerKey(), c.fingerprint())
	malformed, ok := errors.AsType[*canon.Error](err)
	switch {
	case failed != nil:
		return answer{}, failed
	case ok: // a number that is too large: the checks of JSON accept it
		return answer{}, invalid(issue{Path: strings.TrimPrefix(malformed.Path, "/params"), Problem: "is not JSON that can be compared: " + malformed.Problem})
	case err != nil:
		return answer{}, err
	}
	c.note.deduped = r.Decision == idempotency.DecidedDuplicate
	if c.note.deduped {
		if err := json.Unmarshal(r.Result, &s); err != nil {
			return answer{}, fmt.Errorf("%w: the answer that was kept: %w", storage.ErrCorrupt, err)
		}
		c.note.runID = s.RunID
	}
	return s.answer(c.note.deduped), nil
}

// fingerprint is what requests with one key must have in common: the operation, and its parameters as they were sent. The
// ledger compares canonical forms.
func (c *call) fingerprint() json.RawMessage {
	r := make([]byte, 0, len(`{"operation":"","params":}`)+len(c.op.name)+len(c.raw))
	r = append(append(r, `{"operation":"`...), c.op.name...)
	r = append(append(r, `","params":`...), c.raw...)
	return append(r, '}')
}

// A sealed is an answer as the ledger keeps it.
type sealed struct {
	Status   int             `json:"status"`
	Body     json.RawMessage `json:"body,omitempty"`
	Location string          `json:"location,omitempty"`
	RunID    string          `json:"runId,omitempty"`
}

// seal returns an answer as the ledger keeps it, and its JSON.
func (c *call) seal(a answer) (s sealed, kept json.RawMessage, err error) {
	s = sealed{Status: a.code(), Location: a.header.Get("Location"), RunID: c.note.runID}
	body, err := a.json()
	if err != nil {
		return s, nil, err
	}
	if body != nil {
		var b bytes.Buffer
		json.HTMLEscape(&b, body) // as the ledger does: the first answer has the bytes of its repetitions
		s.Body = b.Bytes()
	}
	kept, err = json.Marshal(s)
	if err == nil && len(kept) > c.mostSealed() {
		err = newProblem(http.StatusRequestEntityTooLarge, "too_large", "The answer is too large to be kept under an idempotency key. Nothing was changed.")
	}
	return s, kept, err
}

// mostSealed is how large an answer may be that the ledger keeps, in bytes of JSON.
func (e *env) mostSealed() int {
	most := idempotency.DefaultMaxResult
	if b := e.store.Capabilities().MaxBatch.Bytes; b > 0 {
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
