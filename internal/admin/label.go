package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/waiting"
	"github.com/weft-go/weft/internal/worker"
)

// Label is Engine.Label.
func (e *Admin) Label(ctx context.Context, id string, labels map[string]string, by weft.Actor) error {
	if err := errors.Join(CheckActor(by), payload.CheckID(id), checkChanges(labels)); err != nil {
		return err
	}
	call := waiting.New(ctx, "labels of workflow", id)
	verb := journal.Verb{Name: "label", By: by.Name, Why: by.Reason}
	return call.Explain(e.Change(call, id, e.act(verb, "label", func(_ context.Context, wf *journal.Workflow) (*worker.Changing, error) {
		next := *wf
		next.Labels = run.Relabelled(wf.Labels, labels)
		if err := payload.CheckRelabelled(next.Labels); err != nil {
			return nil, fmt.Errorf("label workflow %q: %w", id, err)
		}
		switch {
		case maps.Equal(next.Labels, wf.Labels):
			return nil, nil
		case wf.Status.Terminal(): // no checkpoint follows that could record the verb
			return e.Rewritten(wf, &next)
		}
		return e.acting(wf, &next, verb)
	})))
}

// checkChanges validates changes of labels.
func checkChanges(labels map[string]string) error {
	if len(labels) == 0 {
		return fmt.Errorf("%w: no label is named", weft.ErrInvalid)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if err := payload.CheckLabelChange(name, labels[name]); err != nil {
			return err
		}
	}
	return nil
}
