package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/export"
	"github.com/weft-go/weft/internal/record"
)

// Rehearse is Engine.Rehearse.
func (e *Reader) Rehearse(ctx context.Context, f weft.Filter) iter.Seq2[weft.Rehearsal, error] {
	return func(yield func(weft.Rehearsal, error) bool) {
		if f.Workflow != "" && e.Workflows[f.Workflow] == nil {
			yield(weft.Rehearsal{}, fmt.Errorf("%w: rehearse: Config.Workflows has none of the name %q", weft.ErrInvalid, f.Workflow))
			return
		}
		reader := &Reader{Worker: e.rehearsal()}
		for info, err := range reader.List(ctx, f) {
			r := weft.Rehearsal{ID: info.ID, Workflow: info.Workflow, Err: err}
			switch {
			case err != nil && info.ID == "":
				yield(weft.Rehearsal{}, err)
				return
			case err == nil && !reader.rehearses(f, &info):
				continue
			case err == nil:
				r.Err, err = reader.rehearse(ctx, info.ID)
			default:
				err = nil // the record is damaged
			}
			if errors.Is(err, weft.ErrNotFound) {
				continue // it was purged meanwhile
			}
			if err != nil {
				yield(weft.Rehearsal{}, err)
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// rehearses reports whether this engine would execute a workflow that f selects.
func (e *Reader) rehearses(f weft.Filter, i *weft.Info) bool {
	return e.Workflows[i.Workflow] != nil &&
		(i.Deployment == "" || i.Deployment == e.Deployment) &&
		(!i.Status.Terminal() || f.Status != "")
}

// A turn of the workflow function may last that long in a rehearsal.
const mostTurn = time.Minute

// rehearse returns why the code of this engine would not go on with a workflow, or nil. err is an
// error of the store or of ctx, and says nothing about the workflow.
func (e *Reader) rehearse(ctx context.Context, id string) (why, err error) {
	s, history, err := e.readHistory(ctx, id)
	switch {
	case record.Damaged(err), errors.Is(err, weft.ErrBusy):
		return err, nil
	case err != nil:
		return nil, err
	}
	if err := s.wf.Understood(); err != nil {
		return err, nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, mostTurn, fmt.Errorf("the function has not returned to the engine for %v", mostTurn))
	defer cancel()
	why = replay(limited, e.Worker, s.preamble(), history)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return why, nil
}

// readHistory reads a workflow and its history. See readLife.
func (e *Reader) readHistory(ctx context.Context, id string) (s *snapshot, history []checkpoint.Checkpoint, _ error) {
	err := readLife(func() (begun bool, err error) {
		history = nil
		if s, err = e.snapshot(ctx, id); err != nil {
			return false, err
		}
		for c, err := range e.historyOf(ctx, s) {
			if err != nil {
				return false, err
			}
			history = append(history, c)
		}
		return false, nil
	})
	return s, history, err
}

// ExportSample is Engine.ExportSample.
func (e *Reader) ExportSample(ctx context.Context, f weft.Filter, each int, create func(weft.Info) (io.WriteCloser, error)) error {
	switch {
	case each < 1:
		return fmt.Errorf("%w: export of a sample: %d of each shape, at least 1", weft.ErrInvalid, each)
	case create == nil:
		return fmt.Errorf("%w: export of a sample: create is nil", weft.ErrInvalid)
	}
	had := map[string]int{}
	for info, err := range e.List(ctx, f) {
		if err != nil {
			return err
		}
		s, history, err := e.readHistory(ctx, info.ID)
		if errors.Is(err, weft.ErrNotFound) || errors.Is(err, weft.ErrBusy) {
			continue // it was purged meanwhile, or continues as new all the time
		}
		if err != nil {
			return err
		}
		shape := shapeOf(s, history)
		if had[shape] == each {
			continue
		}
		had[shape]++
		if err := exportTo(create, info, s, history); err != nil {
			return fmt.Errorf("engine: export of a sample: workflow %q: %w", info.ID, err)
		}
	}
	return nil
}

// exportTo exports a history to what create returns for it.
func exportTo(create func(weft.Info) (io.WriteCloser, error), info weft.Info, s *snapshot, history []checkpoint.Checkpoint) error {
	var b bytes.Buffer // so that nothing is created for a history that cannot be exported
	err := export.Write(&b, s.preamble(), func(yield func(checkpoint.Checkpoint, error) bool) {
		for _, c := range history {
			if !yield(c, nil) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	w, err := create(info)
	if err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return errors.Join(err, w.Close())
}

// shapeOf returns a text that is the same for runs that have gone the same ways: their type, the
// kinds and names of their operations, their choices of versions, and how they ended.
func shapeOf(s *snapshot, history []checkpoint.Checkpoint) string {
	parts := map[string]bool{}
	end := ""
	for _, c := range history {
		for _, ev := range c.Events {
			switch {
			case ev.Kind == checkpoint.KindVersioned:
				parts[fmt.Sprintf("%q %d", ev.Name, ev.Version)] = true
			case ev.Kind == checkpoint.KindEnded:
				end = ev.Name
			case export.TakesEndBack(ev):
				end = ""
			case ev.Operation != "":
				parts[fmt.Sprintf("%s %q %s", ev.Of, ev.Name, ev.Kind)] = true
			}
		}
	}
	return strings.Join(append(slices.Sorted(maps.Keys(parts)), s.wf.Type, end), "\n")
}
