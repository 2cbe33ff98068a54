package engine

import (
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
func (e *env) active(ctx context.Context) (*activeRecord, error) {
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

// pins reports whether wf, a run that has not begun, must be bound to a deployment: its
// workflow is Pinned, as far as e knows, and it has no deployment.
func (e *env) pins(wf *checkpoint.Workflow) bool {
	def := e.workflows[wf.Type]
	return def != nil && def.pinned && wf.Deployment == "" && (wf.Status == "" || wf.Status == checkpoint.StatusPending)
}

// isActive reports whether e belongs to the active deployment.
func (e *env) isActive(a *activeRecord) bool {
	return a.Deployment != "" && a.Deployment == e.deployment
}

// place reads the active deployment for a try of s, if its workflow is Pinned.
func (s *starting) place(ctx context.Context) (err error) {
	if !s.host.pins(s.wf) {
		return nil
	}
	s.under, err = s.host.active(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("engine: start %q: %w", s.wf.ID, err)
	case s.under.Deployment == "":
		return fmt.Errorf("%w: start %q: workflow %s is Pinned", ErrNoActiveDeployment, s.wf.ID, s.wf.Type)
	case !s.host.isActive(s.under):
		s.owner = nil // an engine of that deployment will claim it
	}
	return nil
}

// bind binds wf, which is claimed when it is started, to the active deployment. It returns
// the condition that the deployment is still active.
func (s *starting) bind(wf *checkpoint.Workflow) []storage.Condition {
	if s.owner == nil || s.under == nil {
		return nil
	}
	wf.Deployment = s.under.Deployment
	return []storage.Condition{s.under.unchanged()}
}

// hasPinned reports whether at least one workflow of e is Pinned.
func (e *env) hasPinned() bool {
	for _, d := range e.workflows {
		if d.pinned {
			return true
		}
	}
	return false
}
