package operation

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

// CommitPatience is how long one change is decided anew, or its outcome settled: its audit row may land so long after its time.
const CommitPatience = 10 * time.Second

// Settling returns a context for a change: a client that goes away does not stop one that has begun.
func Settling(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), CommitPatience)
}

// Outlasting is Settling for a change that may take longer: it has CommitPatience from when its client goes, its key is revoked,
// or the plane closes.
func (c *Call) Outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	held, release := c.Hold(ctx)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(held, func() {
		select {
		case <-time.After(CommitPatience):
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		stop()
		cancel()
		release()
	}
}

// Mutate makes one change: apply stages it on tx, with conditions on what it has decided by
// (Engine.In(tx), tx.Commit; tx is a *stage.Tx), and the batch also has the audit row and, if the call has an idempotency
// key, the answer. Nothing of it is in the store unless all is.
//
// apply is called again from fresh reads if somebody else has changed what it read, for 10 s. So it
// has no effects beside those on tx, and it sets Call.Note anew. An error of apply is returned
// unchanged, and nothing is written.
//
// If the answer to this key was given before, Mutate returns that answer. apply may have been called in vain: the
// first attempt presumes that the key is a new one, which the commit finds out.
func (c *Call) Mutate(ctx context.Context, apply func(ctx context.Context, tx storage.Tx) (Answer, error)) (Answer, error) {
	ctx, cancel := Settling(ctx)
	defer cancel()
	presume := c.IdempotencyKey != ""
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
			return Answer{}, busy(err)
		}
	}
}

// attempt makes one attempt of Mutate. It is to be made again if somebody else has changed what was
// read, or if it presumed wrongly that the idempotency key is a new one: what would be refused then is not
// committed, and says nothing.
func (c *Call) attempt(ctx context.Context, apply func(ctx context.Context, tx storage.Tx) (Answer, error), presume bool) (a Answer, again bool, _ error) {
	c.Note, c.Presumes = Note{}, presume
	tx := stage.New(c.Store)
	if presume {
		tx.Presume(c.claim(), nil)
	}
	a, err := c.staged(ctx, tx, apply)
	switch {
	case err != nil && presume, errors.Is(err, storage.ErrConflict) || errors.Is(err, stage.ErrStale) || errors.Is(err, idempotency.ErrInProgress):
		return Answer{}, true, err
	case err != nil:
		return Answer{}, false, c.explain(err, false) // nothing was sent to the store
	case c.Note.Deduped:
		return a, false, nil
	}
	row := c.newAuditRow(a.Code(), "")
	put, err := row.Put(c.Home.Tenant())
	if err == nil {
		err = tx.Add(ctx, storage.Batch{If: []storage.Condition{storage.Absent(put.Key)}, Ops: []storage.Op{put}})
	}
	var b storage.Batch
	if err == nil {
		b, err = tx.Batch()
	}
	if err != nil {
		return Answer{}, presume, c.explain(err, false)
	}
	landed := settle.Stored(c.Store, put)
	given := false // the key is no new one
	settling, stop := context.WithCancel(ctx)
	defer stop()
	err = settle.Commit(settling, c.Store, b, func(error) {
		// A store that is full takes nothing, and has the answer nevertheless.
		if given = presume && c.given(ctx, landed); given {
			stop()
		}
	}, landed)
	switch {
	case given:
		return Answer{}, true, err
	case err == nil:
		c.Audited = true
		c.Engine.Poke()
		return a, false, nil
	case errors.Is(err, storage.ErrConflict):
		return Answer{}, true, err
	}
	return Answer{}, false, c.explain(err, true)
}

// claim is where the ledger has the idempotency key.
func (c *Call) claim() []byte {
	k := c.ledgerKey()
	return keys.Claim(k.Tenant, k.SourceType, k.SourceID, k.Hash())
}

func (c *Call) ledgerKey() idempotency.Key {
	return idempotency.Key{Tenant: c.Who.Tenant(), SourceType: c.Op.Method + " " + c.Op.Path, SourceID: c.IdempotencyKey, Action: keyedAction}
}

// keyedAction is the Action of the keys of all operations: their SourceType tells them apart.
const keyedAction = "request"

// given reports whether the store has the idempotency key, and not from the attempt that has landed if landed
// says so.
func (c *Call) given(ctx context.Context, landed func(context.Context) (bool, error)) bool {
	if _, err := c.Store.Get(ctx, c.claim()); err != nil {
		return false
	}
	mine, err := landed(ctx)
	return err == nil && !mine
}

// staged calls apply on tx: for a call with an idempotency key, inside the ledger.
func (c *Call) staged(ctx context.Context, tx *stage.Tx, apply func(ctx context.Context, tx storage.Tx) (Answer, error)) (Answer, error) {
	if c.IdempotencyKey == "" {
		return apply(ctx, tx)
	}
	var (
		s      sealed
		failed error // of apply: the ledger wraps it
	)
	effect := &idempotency.Effect[json.RawMessage, json.RawMessage]{
		Name: keyedAction, OnAbandoned: idempotency.TakeOver, Wait: -1, Retention: c.Keep,
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
	r, err := effect.Do(ctx, c.Ledger.In(tx), c.ledgerKey(), c.fingerprint())
	malformed, ok := errors.AsType[*canon.Error](err)
	switch {
	case failed != nil:
		return Answer{}, failed
	case ok: // a number that is too large: the checks of JSON accept it
		return Answer{}, Invalid(Issue{Path: strings.TrimPrefix(malformed.Path, "/params"), Problem: "is not JSON that can be compared: " + malformed.Problem})
	case err != nil:
		return Answer{}, err
	}
	c.Note.Deduped = r.Decision == idempotency.DecidedDuplicate
	if c.Note.Deduped {
		if err := json.Unmarshal(r.Result, &s); err != nil {
			return Answer{}, fmt.Errorf("%w: the answer that was kept: %w", storage.ErrCorrupt, err)
		}
		c.Note.RunID = s.RunID
	}
	return s.answer(c.Note.Deduped), nil
}

// fingerprint is what requests with one key must have in common: the operation, and its parameters as they were sent. The
// ledger compares canonical forms.
func (c *Call) fingerprint() json.RawMessage {
	r := make([]byte, 0, len(`{"operation":"","params":}`)+len(c.Op.Name)+len(c.Raw))
	r = append(append(r, `{"operation":"`...), c.Op.Name...)
	r = append(append(r, `","params":`...), c.Raw...)
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
func (c *Call) seal(a Answer) (s sealed, kept json.RawMessage, err error) {
	s = sealed{Status: a.Code(), Location: a.Header.Get("Location"), RunID: c.Note.RunID}
	body, err := a.JSON()
	if err != nil {
		return s, nil, err
	}
	if body != nil {
		var b bytes.Buffer
		json.HTMLEscape(&b, body) // as the ledger does: the first answer has the bytes of its repetitions
		s.Body = b.Bytes()
	}
	kept, err = json.Marshal(s)
	if err == nil && len(kept) > c.MostSealed() {
		err = NewProblem(http.StatusRequestEntityTooLarge, "too_large", "The answer is too large to be kept under an idempotency key. Nothing was changed.")
	}
	return s, kept, err
}

// MostSealed is how large an answer may be that the ledger keeps, in bytes of JSON.
func (e *Env) MostSealed() int {
	most := idempotency.DefaultMaxResult
	if b := e.Store.Capabilities().MaxBatch.Bytes; b > 0 {
		most = min(most, b/4) // as for every ledger
	}
	return most
}

func (s sealed) answer(again bool) Answer {
	a := Answer{Status: s.Status, Header: http.Header{}}
	if s.Body != nil {
		a.Body = s.Body
	}
	if s.Location != "" {
		a.Header.Set("Location", s.Location)
	}
	if again {
		a.Header.Set("Idempotent-Replayed", "true")
	}
	return a
}
