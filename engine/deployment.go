package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// The first claim of a run of a Pinned workflow binds the run to the active deployment.
// Only an engine of that deployment makes this claim, and only engines of that deployment
// execute the run from then on. The claim has the condition that the deployment is still
// active. So after Activate has returned, no run starts on another deployment, and a
// deployment that is no longer active gets no new runs, except children of its runs.

// activeRecord is the record meta:deployment: where runs of Pinned workflows start. Its
// zero value means that no deployment was activated.
type activeRecord struct {
	Deployment string `cbor:"1,keyasint"`
	Before     string `cbor:"2,keyasint,omitempty"` // the target of Rollback; "" if there is none

	// Who activated it, why, and when.
	By  string `cbor:"3,keyasint"`
	Why string `cbor:"4,keyasint"`
	At  int64  `cbor:"5,keyasint"`

	raw     []byte // as stored; nil if it is not stored
	unknown record.Unknown
}

var activeKey = keys.Meta("deployment")

// unchanged returns the condition that the stored record is still a.
func (a *activeRecord) unchanged() storage.Condition {
	if a.raw == nil {
		return storage.Absent(activeKey)
	}
	return storage.Equal(activeKey, a.raw)
}

// active reads the record of the active deployment. If it is damaged, active returns an
// error and a record with its raw bytes, for unchanged.
func (e *Engine) active(ctx context.Context) (*activeRecord, error) {
	raw, err := e.store.Get(ctx, activeKey)
	if errors.Is(err, storage.ErrNotFound) {
		return &activeRecord{}, nil
	}
	a := &activeRecord{raw: raw}
	if err == nil {
		a.unknown, err = record.Open(activeKey, raw, checkpoint.Version, a)
	}
	if err != nil {
		return &activeRecord{raw: raw}, fmt.Errorf("engine: read the active deployment: %w", err)
	}
	return a, nil
}

// Activate makes a deployment the active one. Runs of Pinned workflows that have not begun
// will start there, on engines with this Config.Deployment: workflows that are started
// after Activate has returned, and those that were started before and have not begun. Runs
// that have begun stay on their deployment. No engine of the deployment needs to run yet.
// Activating the active deployment does nothing.
//
// The change is durable when Activate returns, and the log has who made it and why. Errors:
// ErrInvalid, ErrClosed. After any other error the outcome is unknown: see ActiveDeployment.
func (e *Engine) Activate(ctx context.Context, deployment string, by Actor) error {
	if err := errors.Join(checkActor(by), checkName("deployment", deployment, keys.MaxName)); err != nil {
		return err
	}
	call := waiting(ctx, "activation of deployment", deployment)
	return call.explain(e.point(call, "activate", by, func(now *activeRecord, err error) (*activeRecord, error) {
		switch {
		case err != nil && (!errors.Is(err, storage.ErrCorrupt) || now.raw == nil):
			return nil, err
		case now.Deployment == deployment:
			return nil, nil
		}
		// This also replaces a damaged record, because nothing else can repair it.
		return &activeRecord{Deployment: deployment, Before: now.Deployment}, nil
	}))
}

// Rollback makes the deployment active that was active before the current one. Otherwise it
// is like Activate. It goes back one step only. Errors: ErrNotApplicable if no deployment was
// active before, and for a second rollback.
func (e *Engine) Rollback(ctx context.Context, by Actor) error {
	if err := checkActor(by); err != nil {
		return err
	}
	call := waiting(ctx, "rollback of", "the active deployment")
	return call.explain(e.point(call, "rollback", by, func(now *activeRecord, err error) (*activeRecord, error) {
		switch {
		case err != nil:
			return nil, err
		case now.Before == "":
			return nil, fmt.Errorf("%w: rollback: there is no deployment to go back to", ErrNotApplicable)
		}
		return &activeRecord{Deployment: now.Before}, nil
	}))
}

// ActiveDeployment returns the deployment on which new runs of Pinned workflows start.
// Errors: ErrNoActiveDeployment, ErrClosed, the store's.
func (e *Engine) ActiveDeployment(ctx context.Context) (string, error) {
	if err := e.refused(); err != nil {
		return "", err
	}
	a, err := e.active(ctx)
	if err == nil && a.Deployment == "" {
		err = ErrNoActiveDeployment
	}
	return a.Deployment, err
}

// point writes the record that decide returns as the active deployment. If decide returns
// nil, it changes nothing.
func (e *Engine) point(ctx context.Context, verb string, by Actor, decide func(now *activeRecord, err error) (*activeRecord, error)) error {
	for range mostTries {
		if err := errors.Join(e.refused(), ctx.Err()); err != nil {
			return err
		}
		now, err := e.active(ctx)
		next, err := decide(now, err)
		if next == nil || err != nil {
			return err
		}
		next.By, next.Why, next.At, next.unknown = by.Name, by.Reason, checkpoint.Micro(e.now()), now.unknown
		again, err := e.replace(ctx, now, next)
		if err != nil {
			return fmt.Errorf("engine: %s %q: %w", verb, next.Deployment, err)
		}
		if !again {
			e.log.Info("weft: deployment is active", "deployment", next.Deployment, "before", now.Deployment, "verb", verb, "by", by.Name, "why", by.Reason)
			e.PokePoll()
			return nil
		}
	}
	return contradiction(activeKey)
}

var errPointed = errors.New("another deployment was activated meanwhile; it is unknown whether this one was active before")

// replace replaces now by next. It reports whether to decide again because the record was
// changed first. If the outcome of a commit was unknown it returns errPointed instead,
// because next may have been active before that change.
func (e *Engine) replace(ctx context.Context, now, next *activeRecord) (again bool, err error) {
	raw, err := record.Seal(activeKey, checkpoint.Version, next, next.unknown)
	if err != nil {
		return false, err
	}
	certain := true
	unsure := func(err error) {
		certain = false
		e.log.Warn("weft: outcome of an activation is unknown, trying again", "deployment", next.Deployment, "error", err)
	}
	b := storage.Batch{If: []storage.Condition{now.unchanged()}, Ops: []storage.Op{storage.Put(activeKey, raw)}}
	err = checkpoint.Settle(ctx, e.store, b, unsure, func(ctx context.Context) (bool, error) {
		there, err := e.store.Get(ctx, activeKey)
		if errors.Is(err, storage.ErrNotFound) {
			return false, nil
		}
		return err == nil && bytes.Equal(there, raw), err
	})
	if !errors.Is(err, storage.ErrConflict) {
		return false, err
	}
	if !certain {
		return false, errPointed
	}
	return true, nil
}

// pins reports whether wf, a run that has not begun, must be bound to a deployment: its
// workflow is Pinned, as far as e knows, and it has no deployment.
func (e *Engine) pins(wf *checkpoint.Workflow) bool {
	def := e.workflows[wf.Type]
	return def != nil && def.pinned && wf.Deployment == "" && (wf.Status == "" || wf.Status == checkpoint.StatusPending)
}

// isActive reports whether e belongs to the active deployment.
func (e *Engine) isActive(a *activeRecord) bool {
	return a.Deployment != "" && a.Deployment == e.config.Deployment
}

// place reads the active deployment for a try of s, if its workflow is Pinned.
func (s *starting) place(ctx context.Context) (err error) {
	if !s.eng.pins(s.wf) {
		return nil
	}
	s.under, err = s.eng.active(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("engine: start %q: %w", s.wf.ID, err)
	case s.under.Deployment == "":
		return fmt.Errorf("%w: start %q: workflow %s is Pinned", ErrNoActiveDeployment, s.wf.ID, s.wf.Type)
	case !s.eng.isActive(s.under):
		s.incarnation = nil // an engine of that deployment will claim it
	}
	return nil
}

// bind has the claim c bind the run to the active deployment. It returns nil if this engine
// does not belong to that deployment.
func (l *incarnation) bind(ctx context.Context, c *claimable, entry []byte) (*claimable, error) {
	a, err := l.eng.active(ctx)
	switch {
	case err != nil && !record.Damaged(err):
		return nil, err
	case !l.eng.isActive(a):
		l.leaveAlone(entry) // until another deployment is active
		return nil, nil
	}
	c.hold = c.hold.On(a.Deployment)
	c.also = append(c.also, a.unchanged())
	return c, nil
}

// bind binds wf, which is claimed when it is started, to the active deployment. It returns
// the condition that the deployment is still active.
func (s *starting) bind(wf *checkpoint.Workflow) []storage.Condition {
	if s.incarnation == nil || s.under == nil {
		return nil
	}
	wf.Deployment = s.under.Deployment
	return []storage.Condition{s.under.unchanged()}
}

// activeDeployment is the duty to look at skipped entries again when another deployment was
// activated.
type activeDeployment struct {
	incarnation *incarnation
	seen        []byte // the record that was last read
}

func (d *activeDeployment) look(ctx context.Context) error {
	l := d.incarnation
	if !l.eng.pinned {
		return nil
	}
	a, err := l.eng.active(ctx)
	switch {
	case err != nil && !record.Damaged(err):
		return err
	case bytes.Equal(a.raw, d.seen):
		return nil
	}
	d.seen = a.raw
	l.lookAgain()
	return err // reports a damaged record once
}
