package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/deployment"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/settle"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/storage"
)

// Activate is Engine.Activate.
func (e *Admin) Activate(ctx context.Context, id string, by weft.Actor) error {
	if err := errors.Join(CheckActor(by), payload.CheckName("deployment", id, keys.MaxName)); err != nil {
		return err
	}
	call := waiting.New(ctx, "activation of deployment", id)
	return call.Explain(e.point(call, "activate", by, func(now *run.ActiveRecord, err error) (*run.ActiveRecord, error) {
		switch {
		case err != nil && (!errors.Is(err, storage.ErrCorrupt) || now.Raw == nil):
			return nil, err
		case now.Deployment == id:
			return nil, nil
		}
		// This also replaces a damaged record, because nothing else can repair it.
		return &run.ActiveRecord{Deployment: id, Before: now.Deployment}, nil
	}))
}

// Rollback is Engine.Rollback.
func (e *Admin) Rollback(ctx context.Context, by weft.Actor) error {
	if err := CheckActor(by); err != nil {
		return err
	}
	call := waiting.New(ctx, "rollback of", "the active deployment")
	return call.Explain(e.point(call, "rollback", by, func(now *run.ActiveRecord, err error) (*run.ActiveRecord, error) {
		switch {
		case err != nil:
			return nil, err
		case now.Before == "":
			return nil, fmt.Errorf("%w: rollback: there is no deployment to go back to", weft.ErrNotApplicable)
		}
		return &run.ActiveRecord{Deployment: now.Before}, nil
	}))
}

// point writes the record that decide returns as the active deployment. If decide returns
// nil, it changes nothing.
func (e *Admin) point(ctx context.Context, verb string, by weft.Actor, decide func(now *run.ActiveRecord, err error) (*run.ActiveRecord, error)) error {
	for range settle.MostTries {
		if err := errors.Join(e.Refused(), ctx.Err()); err != nil {
			return err
		}
		now, err := e.Active(ctx)
		next, err := decide(now, err)
		if err != nil {
			return err
		}
		if next == nil {
			if err := e.Rests(ctx, now.Unchanged()); !errors.Is(err, storage.ErrConflict) {
				return err
			}
			continue
		}
		next.By, next.Why, next.At, next.UnknownFields = by.Name, by.Reason, journal.Micro(e.Now()), now.UnknownFields
		again, err := e.replace(ctx, now, next)
		if err != nil {
			return fmt.Errorf("engine: %s %q: %w", verb, next.Deployment, err)
		}
		if !again {
			if e.Staged {
				return nil // the host may roll back
			}
			e.Log.Info("weft: deployment is active", "deployment", next.Deployment, "before", now.Deployment, "verb", verb, "by", by.Name, "why", by.Reason)
			e.PokePoll()
			return nil
		}
	}
	return settle.Contradiction(run.ActiveKey)
}

var errPointed = errors.New("another deployment was activated meanwhile; it is unknown whether this one was active before")

// replace replaces now by next, and notes the time in the deployment's own record, if there is one.
// It reports whether to decide again because the record was
// changed first. If the outcome of a commit was unknown it returns errPointed instead,
// because next may have been active before that change.
func (e *Admin) replace(ctx context.Context, now, next *run.ActiveRecord) (again bool, err error) {
	raw, err := record.Seal(run.ActiveKey, journal.Version, next, next.UnknownFields)
	if err != nil {
		return false, err
	}
	certain := true
	unsure := func(err error) {
		certain = false
		e.Log.Warn("weft: outcome of an activation is unknown; trying again", "deployment", next.Deployment, "error", err)
	}
	b, err := deployment.Activated(ctx, e.Store, next.Deployment, journal.Time(next.At))
	if err != nil {
		return false, err
	}
	b.If = append(b.If, now.Unchanged())
	put := storage.Put(run.ActiveKey, raw)
	b.Ops = append(b.Ops, put)
	err = settle.Commit(ctx, e.Store, b, unsure, settle.Stored(e.Store, put))
	if !errors.Is(err, storage.ErrConflict) {
		return false, err
	}
	if !certain {
		return false, errPointed
	}
	return true, nil
}
