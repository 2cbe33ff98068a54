package inspect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/waiting"
)

// Describe is Engine.Describe.
func (e *Reader) Describe(ctx context.Context, id string) (weft.Info, error) {
	call := waiting.New(ctx, "description of workflow", id)
	waiting.For(call, "the store to read")
	info, err := e.describe(call, id)
	return info, call.Explain(err)
}

func (e *Reader) describe(ctx context.Context, id string) (weft.Info, error) {
	wf, err := e.Load(ctx, id)
	if err != nil {
		return weft.Info{}, err
	}
	return e.stateOf(ctx, wf)
}

// stateOf returns the state of wf, also what its record does not say.
func (e *Reader) stateOf(ctx context.Context, wf *journal.Workflow) (weft.Info, error) {
	who := e.newRoster(mostPatience)
	info, err := e.infoOf(ctx, wf, who)
	if err != nil {
		return weft.Info{}, err
	}
	if err := e.complete(ctx, &info, wf, who); err != nil {
		return weft.Info{}, err
	}
	if !wf.Status.Terminal() {
		info.Unreceived, err = e.unreceived(ctx, wf, info.Waiting)
	}
	return info, err
}

// Limits of how long Describe waits for the driver of a run that is busy, and List for all of
// them together.
const (
	mostPatience = 100 * time.Millisecond
	mostTogether = time.Second
)

// complete adds to info what the record of wf does not say: what a run in memory waits for, that
// it waits for an engine, and why it has no result.
func (e *Reader) complete(ctx context.Context, info *weft.Info, wf *journal.Workflow, who *roster) error {
	if wf.Status.Terminal() {
		return e.explain(ctx, info, wf)
	}
	if x := e.ExecutionOf(wf); x != nil {
		info.Waiting = who.ask(ctx, x)
		return nil
	}
	if run.Held(wf) {
		return nil
	}
	none, err := who.empty(ctx)
	if none {
		info.Waiting = append(slices.Clip(info.Waiting), "an engine: none runs")
	}
	return err
}

// explain sets info.Failure to the text of the error that Result returns.
func (e *Reader) explain(ctx context.Context, info *weft.Info, wf *journal.Workflow) error {
	if wf.Status == checkpoint.StatusCompleted {
		return nil
	}
	out, err := journal.ReadOutput(ctx, e.Store, wf)
	if err != nil {
		if err = run.Outdated(ctx, e.Store, wf, err); record.Damaged(err) {
			info.Failure = err.Error()
			return nil
		}
		return err // nil: it was purged or resumed meanwhile
	}
	info.Failure = e.failure(&run.Ending{Workflow: wf.Type, Cancel: wf.Cancel, Output: out}, wf.ID).Error()
	return nil
}

// mostSignals is how many signals unreceived looks at.
const mostSignals = 1000

// unreceived describes the signals of wf for which no operation waits. What a run asks for is
// known only if it is parked, or if this engine executes it.
func (e *Reader) unreceived(ctx context.Context, wf *journal.Workflow, waiting []string) (words []string, err error) {
	parked := wf.Owner == "" && len(wf.Facing) > 0
	if !parked && (e.ExecutionOf(wf) == nil || waiting == nil) {
		return nil, nil // it is unknown what it asks for
	}
	page, _, err := acceptance.Inbox(ctx, e.Store, wf.ID, 0, mostSignals)
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, w := range page {
		count[w.Name]++
	}
	for _, name := range slices.Sorted(maps.Keys(count)) {
		asked := func(s string) bool { return s == "receive "+name || strings.HasPrefix(s, "receive "+name+" until ") }
		switch n := count[name]; {
		case slices.ContainsFunc(waiting, asked) || slices.Contains(wf.Awaits, name):
		case n == 1:
			words = append(words, fmt.Sprintf("1 signal %s waits, which the workflow has not asked for", name))
		default:
			words = append(words, fmt.Sprintf("%d signals %s wait, which the workflow has not asked for", n, name))
		}
	}
	return words, nil
}

// infoOf returns what the record of wf says, and whether no engine can execute it.
func (e *Reader) infoOf(ctx context.Context, wf *journal.Workflow, who *roster) (weft.Info, error) {
	info := run.InfoOf(wf)
	if need := wf.Unmet(); need != "" {
		info.Attention = append(info.Attention, weft.Attention{Reason: weft.ReasonNewerRelease, Name: need, Detail: wf.Understood().Error(), Since: info.CreatedAt})
		return info, nil
	}
	if wf.Status.Terminal() || e.ExecutionOf(wf) != nil {
		return info, nil
	}
	why, err := e.leftAlone(ctx, wf, who)
	if why != "" {
		info.Attention = append(info.Attention, weft.Attention{Reason: weft.ReasonUnregistered, Name: wf.Type, Detail: why, Since: info.CreatedAt})
	}
	return info, err
}

// leftAlone returns why no engine can execute wf, as far as e knows, or "". For a run that
// is pinned to a deployment, or will be, it looks for an engine of the deployment. For any
// other run, e knows its own workflows. If it has none, it looks at those of the engines that
// are alive.
func (e *Reader) leftAlone(ctx context.Context, wf *journal.Workflow, who *roster) (string, error) {
	switch {
	case wf.Deployment != "":
		return who.missing(ctx, wf.Deployment, wf)
	case e.Pins(wf):
		return who.missingActive(ctx, wf)
	case len(e.Workflows) == 0:
		return who.missingAnywhere(ctx, wf)
	}
	_, why := e.Fits(wf)
	return why, nil
}

// History is Engine.History.
func (e *Reader) History(ctx context.Context, id string) iter.Seq2[checkpoint.Checkpoint, error] {
	return func(yield func(checkpoint.Checkpoint, error) bool) {
		err := readLife(func() (begun bool, err error) {
			wf, err := e.Load(ctx, id)
			if err != nil {
				return false, err
			}
			for c, err := range e.lifeOf(ctx, wf) {
				if err != nil {
					return begun, err
				}
				if begun = true; !yield(c, nil) {
					return true, nil
				}
			}
			return begun, nil
		})
		if err != nil {
			yield(checkpoint.Checkpoint{}, err)
		}
	}
}

// A history is short if it has at most that many checkpoints, and not many more bytes.
const (
	shortHistory = 256
	shortBytes   = 1 << 20
)

// lifeOf is HistoryOf, and yields nothing before the history was read as far as a short one goes. So a short one
// is whole, or can be read again: see readLife.
func (e *Reader) lifeOf(ctx context.Context, wf *journal.Workflow) iter.Seq2[checkpoint.Checkpoint, error] {
	return func(yield func(checkpoint.Checkpoint, error) bool) {
		var read []checkpoint.Checkpoint
		short, size := true, 0
		pass := func() bool {
			for _, c := range read {
				if !yield(c, nil) {
					return false
				}
			}
			short, read = false, nil
			return true
		}
		for c, err := range e.HistoryOf(ctx, wf) {
			if short && errors.Is(err, weft.ErrBusy) {
				yield(checkpoint.Checkpoint{}, err)
				return
			}
			if short && err == nil {
				read = append(read, c)
				for i := range c.Events {
					size += sizeOf(&c.Events[i])
				}
				if short = len(read) < shortHistory && size < shortBytes; !short && !pass() {
					return
				}
				continue
			}
			if !pass() || !yield(c, err) || err != nil {
				return
			}
		}
		pass()
	}
}

// mostTries is how often a run that continues as new meanwhile is read from its beginning.
const mostTries = 10

// readLife calls read, which reads a run and its history, again if the run has continued as new
// meanwhile. begun says that something was passed on that cannot be taken back. The error is ErrBusy
// if the run has continued after that, or each time.
func readLife(read func() (begun bool, err error)) error {
	for tries := 1; ; tries++ {
		begun, err := read()
		if !errors.Is(err, weft.ErrBusy) || begun || tries == mostTries {
			return err
		}
	}
}
