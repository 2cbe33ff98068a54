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

// A run of a Pinned workflow is put on a deployment by its first claim, which only an
// engine of the active one makes, and is then driven by engines of that deployment
// alone. The claim holds only if the deployment still is the active one. So when
// Activate has returned no run begins on another any more, and the runs of a
// deployment that are there are all that there will be, but for their children.

// activeRecord is the record meta:deployment: where runs of Pinned workflows begin. Its
// zero value is that nothing was activated.
type activeRecord struct {
	Deployment string `cbor:"1,keyasint"`
	Before     string `cbor:"2,keyasint,omitempty"` // what Rollback goes back to; "": to nothing

	// Who made it so, and why, and when.
	By  string `cbor:"3,keyasint"`
	Why string `cbor:"4,keyasint"`
	At  int64  `cbor:"5,keyasint"`

	raw     []byte // as it is stored; nil: it is not
	unknown record.Unknown
}

var activeKey = keys.Meta("deployment")

// unchanged is the condition that the stored record still is a.
func (a *activeRecord) unchanged() storage.Condition {
	if a.raw == nil {
		return storage.Absent(activeKey)
	}
	return storage.Equal(activeKey, a.raw)
}

// active reads which deployment is active. Of a record that is damaged it returns what
// a condition compares, with the error.
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

// Activate has new runs of Pinned workflows begin on a deployment, by engines whose
// Config.Deployment it is: those of any that is started after Activate has returned,
// and of those that were started before and wait to be begun. Runs that have begun stay
// where they are. There need not be an engine of it yet. To activate what is active
// does nothing.
//
// It is durable when Activate returns, with who and why in the log. Errors: ErrInvalid,
// ErrClosed; any other leaves open whether it was done: see ActiveDeployment.
func (e *Engine) Activate(ctx context.Context, deployment string, by Audit) error {
	if err := errors.Join(by.check(), checkName("deployment", deployment, keys.MaxName)); err != nil {
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
		// In the place of a damaged record, too: nothing else can mend it.
		return &activeRecord{Deployment: deployment, Before: now.Deployment}, nil
	}))
}

// Rollback has new runs of Pinned workflows begin on the deployment that was active
// before the one that is. It goes one step back: what was rolled back from is not kept.
// Otherwise it is as Activate. Errors: ErrNotApplicable if nothing was active before,
// and for another rollback after the first.
func (e *Engine) Rollback(ctx context.Context, by Audit) error {
	if err := by.check(); err != nil {
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

// ActiveDeployment is the deployment on which new runs of Pinned workflows begin.
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

// point makes decide's decision the active deployment; nil is to leave it as it is.
func (e *Engine) point(ctx context.Context, verb string, by Audit, decide func(now *activeRecord, err error) (*activeRecord, error)) error {
	for range mostTries {
		if err := errors.Join(e.refused(), ctx.Err()); err != nil {
			return err
		}
		now, err := e.active(ctx)
		next, err := decide(now, err)
		if next == nil || err != nil {
			return err
		}
		next.By, next.Why, next.At, next.unknown = by.By, by.Why, checkpoint.Micro(e.now()), now.unknown
		again, err := e.replace(ctx, now, next)
		if err != nil {
			return fmt.Errorf("engine: %s %q: %w", verb, next.Deployment, err)
		}
		if !again {
			e.log.Info("weft: deployment is active", "deployment", next.Deployment, "before", now.Deployment, "verb", verb, "by", by.By, "why", by.Why)
			e.pokeLife()
			return nil
		}
	}
	return contradiction(activeKey)
}

var errPointed = errors.New("another deployment was activated meanwhile, and nobody knows whether this one was before")

// replace writes next in the place of now, and says whether to decide anew because
// somebody else was quicker. That must be certain: after an unknown outcome it may be
// that next was active, and somebody has gone on from there.
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

// pins says that wf, a run that begins or is to be started, is to be put on a deployment:
// it is of a workflow that is Pinned, as far as e knows, and has none.
func (e *Engine) pins(wf *checkpoint.Workflow) bool {
	def := e.workflows[wf.Type]
	return def != nil && def.pinned && wf.Deployment == "" && (wf.Status == "" || wf.Status == checkpoint.Pending)
}

// isActive says that e is of the deployment that is active.
func (e *Engine) isActive(a *activeRecord) bool {
	return a.Deployment != "" && a.Deployment == e.config.Deployment
}

// place looks on which deployment s may begin, if its workflow is Pinned. That is looked
// at anew for each try.
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
		s.life = nil // an engine of that deployment finds it
	}
	return nil
}

// bind has the claim of c, whose run begins with it, put the run on the deployment that
// is active; nil if that is not this engine's.
func (l *life) bind(ctx context.Context, c *claimable, entry []byte) (*claimable, error) {
	a, err := l.eng.active(ctx)
	switch {
	case err != nil && !record.Damaged(err):
		return nil, err
	case !l.eng.isActive(a):
		l.leaveAlone(entry) // until another is active
		return nil, nil
	}
	c.hold = c.hold.On(a.Deployment)
	c.also = append(c.also, a.unchanged())
	return c, nil
}

// bind puts wf, which is claimed as it is started, on the deployment that is active. The
// conditions say that it still is.
func (s *starting) bind(wf *checkpoint.Workflow) []storage.Condition {
	if s.life == nil || s.under == nil {
		return nil
	}
	wf.Deployment = s.under.Deployment
	return []storage.Condition{s.under.unchanged()}
}

// activeDeployment is the duty to look at what was left alone when another deployment
// has become active.
type activeDeployment struct {
	life *life
	seen []byte // its record
}

func (d *activeDeployment) look(ctx context.Context) error {
	l := d.life
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
	return err // that it is damaged, once
}
