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

// Activate is Engine.Activate.
func (e *admin) Activate(ctx context.Context, deployment string, by Actor) error {
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

// Rollback is Engine.Rollback.
func (e *admin) Rollback(ctx context.Context, by Actor) error {
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

// ActiveDeployment is Engine.ActiveDeployment.
func (e *admin) ActiveDeployment(ctx context.Context) (string, error) {
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
func (e *admin) point(ctx context.Context, verb string, by Actor, decide func(now *activeRecord, err error) (*activeRecord, error)) error {
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
func (e *admin) replace(ctx context.Context, now, next *activeRecord) (again bool, err error) {
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
