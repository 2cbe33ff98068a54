package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/internal/run"
)

// An ArchiveError means that Config.Archive has not taken a workflow, which therefore stays.
type ArchiveError struct {
	ID    string
	Cause error
}

func (e *ArchiveError) Error() string {
	return fmt.Sprintf("archive workflow %q: %v", e.ID, e.Cause)
}

func (e *ArchiveError) Unwrap() error { return e.Cause }

var (
	errUnread  = errors.New("engine: Config.Archive has returned")
	errGone    = errors.New("engine: Config.Archive has ended its goroutine")
	errIgnores = errors.New("engine: Config.Archive ignores the end of its context, and is abandoned")
)

// archive hands wf, which has ended, to Config.Archive, if there is one.
func (e *Reader) ArchiveEnded(ctx context.Context, wf *journal.Workflow) error {
	if e.Archive == nil {
		return nil
	}
	info, err := e.stateOf(ctx, wf)
	if err != nil {
		return err
	}
	return e.handOver(ctx, info, wf, math.MaxUint64) // all of it: the workflow has ended
}

// ArchiveLife hands the present life of wf, a run that is about to continue as new, to Config.Archive.
// head is its last checkpoint. refused is why that has not taken it; err is why it could not be read.
func (e *Reader) ArchiveLife(ctx context.Context, wf *journal.Workflow, head uint64) (refused, err error) {
	err = e.handOver(ctx, run.InfoOf(wf), wf, head)
	if refused, ok := errors.AsType[*ArchiveError](err); ok {
		return refused, nil
	}
	return nil, err
}

// archiveSlow is how long Config.Archive takes until the log says so. What waits for it does nothing else: a run that is
// about to continue as new, or all retention of this engine.
const archiveSlow = time.Minute

// handOver calls Config.Archive with the history of wf up to the checkpoint head. The function reads
// what this goroutine exports, in a goroutine of its own, because it may end that or never return.
func (e *Reader) handOver(ctx context.Context, info weft.Info, wf *journal.Workflow, head uint64) error {
	in, err := journal.ReadInput(ctx, e.Store, wf)
	if err != nil {
		return err
	}
	slow := time.AfterFunc(archiveSlow, func() {
		e.Log.Warn("weft: Config.Archive has not returned for a minute", "workflow", wf.ID, "type", wf.Type)
	})
	defer slow.Stop()
	reader, writer := io.Pipe()
	defer context.AfterFunc(ctx, func() { writer.CloseWithError(context.Cause(ctx)) })()
	taken := make(chan error, 1)
	go func() {
		err := errGone
		defer func() {
			if p := recover(); p != nil {
				err = payload.Panicked(p)
			}
			reader.CloseWithError(errUnread)
			taken <- err
		}()
		err = e.Archive(ctx, info, struct{ io.Reader }{reader}) // nobody can close it: the body of a request is closed by its client
	}()
	err = e.export(ctx, &snapshot{wf, in, head}, writer)
	writer.CloseWithError(err)
	if errors.Is(err, errUnread) { // it need not read to the end
		err = nil
	}
	if refused := e.answer(ctx, taken); err == nil && refused != nil {
		return &ArchiveError{wf.ID, refused}
	}
	return err
}

// answer waits for what Config.Archive returns, for at most StopTimeout after the end of ctx.
func (e *Reader) answer(ctx context.Context, taken <-chan error) error {
	select {
	case err := <-taken:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(e.StopTimeout)
	defer late.Stop()
	select {
	case err := <-taken:
		return errors.Join(err, context.Cause(ctx))
	case <-late.C:
		return errIgnores
	}
}
