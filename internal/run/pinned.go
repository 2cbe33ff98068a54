package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// The first claim of a run of a Pinned workflow binds the run to the active deployment.
// Only an engine of that deployment makes this claim, and only engines of that deployment
// execute the run from then on. The claim has the condition that the deployment is still
// active. So after Activate has returned, no run starts on another deployment, and a
// deployment that is no longer active gets no new runs, except children of its runs.

// ActiveRecord is the record meta:deployment: where runs of Pinned workflows start. Its
// zero value means that no deployment was activated.
type ActiveRecord struct {
	Deployment string `cbor:"1,keyasint"`
	Before     string `cbor:"2,keyasint,omitempty"` // the target of Rollback; "" if there is none

	// Who activated it, why, and when.
	By  string `cbor:"3,keyasint"`
	Why string `cbor:"4,keyasint"`
	At  int64  `cbor:"5,keyasint"`

	Raw           []byte         `cbor:"-"` // as stored; nil if it is not stored
	UnknownFields record.Unknown `cbor:"-"`
}

// ActiveKey is the key of the ActiveRecord.
var ActiveKey = keys.Meta("deployment")

// Unchanged returns the condition that the stored record is still a.
func (a *ActiveRecord) Unchanged() storage.Condition {
	if a.Raw == nil {
		return storage.Absent(ActiveKey)
	}
	return storage.Equal(ActiveKey, a.Raw)
}

// Active reads the record of the active deployment. If it is damaged, Active returns an
// error and a record with its raw bytes, for Unchanged.
func (e *Env) Active(ctx context.Context) (*ActiveRecord, error) {
	raw, err := e.Store.Get(ctx, ActiveKey)
	if errors.Is(err, storage.ErrNotFound) {
		return &ActiveRecord{}, nil
	}
	a := &ActiveRecord{Raw: raw}
	if err == nil {
		a.UnknownFields, err = record.Open(ActiveKey, raw, journal.Version, a)
	}
	if err != nil {
		return &ActiveRecord{Raw: raw}, fmt.Errorf("engine: read the active deployment: %w", err)
	}
	return a, nil
}

// Pins reports whether wf, a run that has not begun, must be bound to a deployment: its
// workflow is Pinned, as far as e knows, and it has no deployment.
func (e *Env) Pins(wf *journal.Workflow) bool {
	def := e.Workflows[wf.Type]
	return def != nil && def.Pinned && wf.Deployment == "" && (wf.Status == "" || wf.Status == checkpoint.StatusPending)
}

// IsActive reports whether e belongs to the active deployment.
func (e *Env) IsActive(a *ActiveRecord) bool {
	return a.Deployment != "" && a.Deployment == e.Deployment
}

// Place reads the active deployment for a try of s, if its workflow is Pinned.
func (s *PreparedStart) Place(ctx context.Context) (err error) {
	if !s.host.Pins(s.Workflow) {
		return nil
	}
	s.under, err = s.host.Active(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("engine: start %q: %w", s.Workflow.ID, err)
	case s.under.Deployment == "":
		return fmt.Errorf("%w: start %q: workflow %s is Pinned; call Engine.Activate first", weft.ErrNoActiveDeployment, s.Workflow.ID, s.Workflow.Type)
	case !s.host.IsActive(s.under):
		s.Owner = nil // an engine of that deployment will claim it
	}
	return nil
}

// inherit puts a child on the deployment of its parent, if the parent or the child stays there.
func (s *PreparedStart) inherit(parent *journal.Workflow) {
	def := s.host.Workflows[s.Workflow.Type]
	switch {
	case s.Workflow.Deployment != "": // its own options say where
	case parent.KeepsChildren():
		s.Workflow.StartOn(parent.Deployment)
	case def != nil && def.Pinned:
		s.Workflow.Deployment = parent.Deployment
	}
}

// bind binds wf, which is claimed when it is started, to the active deployment. It returns
// the condition that the deployment is still active.
func (s *PreparedStart) bind(wf *journal.Workflow) []storage.Condition {
	if s.Owner == nil || s.under == nil {
		return nil
	}
	wf.Deployment = s.under.Deployment
	return []storage.Condition{s.under.Unchanged()}
}

// HasPinned reports whether at least one workflow of e is Pinned.
func (e *Env) HasPinned() bool {
	for _, d := range e.Workflows {
		if d.Pinned {
			return true
		}
	}
	return false
}
