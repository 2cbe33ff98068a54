package engine

import (
	"context"
	"io"
	"iter"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/stream"
)

// Page returns a page of the workflows that f selects, the newest first, or the oldest first with
// r.Ascending. Filter says in which order. What a call has started, ended or labelled is in every
// page that is read after the call returned. To read on, call Page again with the same f and
// Ascending, and with Page.Next as the Cursor, while Page.HasMore is true.
//
// Workflows may start and end between two pages. No workflow is in two pages of a list, and none is
// missed whose status and labels stay as they are. A list by the time of the status ends, if it is
// Ascending, with what was there when its first page was read. With f.Attention, first come the
// workflows with an Attention in their records. Then come those that no engine that is alive can
// execute, as far as they are due, wait in a queue or belong to an engine: in no particular order,
// and a workflow whose reasons change meanwhile may be in two pages.
//
// A page takes about as long however many workflows there are, if f has nothing but times and one
// of these: a Workflow, a Status, or both; one label, with or without a Status; a Parent; an
// IDPrefix; nothing. With Attention, Page also looks at each workflow that is due, waits in a queue
// or belongs to an engine. For any other f it passes over what f does not select. It reads at most
// 10,000 entries for a page, so a page may be short, or empty, although there are more.
//
// A workflow whose record is damaged, or was written by a newer release, has only its ID and
// Info.Damaged. Errors: ErrInvalid for an f, a Limit or a Cursor that is not valid, and for a Cursor of
// another filter or order; ErrClosed; the store's. docs/guides/finding-workflows.md has examples.
func (e *Engine) Page(ctx context.Context, f Filter, r PageRequest) (Page[Info], error) {
	return e.reader.Page(ctx, f, r)
}

// Count returns how many workflows f selects, and whether these are all: it stops at most. It takes
// time in proportion to the number. It reads no records if f has nothing but times and one of
// these: a Workflow, a Status, or both; one label, with or without a Status; a Parent; nothing.
// Otherwise it reads the record of each workflow, and also stops after 10,000 entries, or after most
// if that is greater.
//
// A workflow whose record is damaged counts, as it is in a Page. One that comes into another status
// meanwhile may count twice, or not at all. Errors: ErrInvalid, also if most is less than 1;
// ErrClosed; the store's.
func (e *Engine) Count(ctx context.Context, f Filter, most int) (n int, all bool, err error) {
	return e.reader.Count(ctx, f, most)
}

// List yields all workflows that f selects, the newest first. It reads one Page after the other, in
// the same order. A workflow whose record is damaged, or was written by a newer release, is yielded as its id and
// that error, and the others follow. Any other error ends the sequence.
func (e *Engine) List(ctx context.Context, f Filter) iter.Seq2[Info, error] {
	return e.reader.List(ctx, f)
}

// History yields a workflow's checkpoints, from the first. An error ends the
// sequence: one that wraps storage.ErrCorrupt for a missing or damaged checkpoint;
// ErrNotFound, also if the workflow is purged meanwhile; ErrBusy if it continues as new meanwhile, and
// the rest of what was being read is gone; ErrInvalid, ErrClosed, the store's.
func (e *Engine) History(ctx context.Context, id string) iter.Seq2[checkpoint.Checkpoint, error] {
	return e.reader.History(ctx, id)
}

// Events returns a page of the events in the history of a workflow's present life, the newest first, or the
// oldest first with r.Ascending. To read on, call Events again with the same Ascending, and with Page.Next as
// the Cursor, while Page.HasMore is true. A Cursor is the ID of an event, and the page begins behind it. The page
// also ends before its events are larger than 4 MiB. It takes about as long wherever it is in the history. With
// r.NoData, events come without their Result and Codec, which does not change the cursors.
//
// What a reset goes back to before stays in the history, and so it is among the events. Errors:
// ErrInvalid for a Limit or a Cursor that is not valid; an *EventsGoneError if the history does not have the
// event of the Cursor, or not any more; ErrNotFound; ErrBusy if the workflow continues as new again and again
// meanwhile; ErrClosed; storage.ErrCorrupt for a missing or damaged checkpoint; the store's.
func (e *Engine) Events(ctx context.Context, id string, r PageRequest) (Page[Event], error) {
	return e.reader.Events(ctx, id, r)
}

// Follow yields the events of a workflow behind the one whose ID is after, or from the first of its present
// life if after is "". When it has yielded what there is, it waits for more. The sequence ends when the workflow
// has ended and all of its events were yielded. It misses none and yields none twice, also if the caller goes on
// with the ID of the last event that it got, in another process or after a restart.
//
// The sequence follows the workflow into its next life if it continues as new, and past a resume or a reset, if
// that comes before the sequence has ended. What a reset goes back to before is not taken back, and is not
// yielded again: the event of the reset follows. After a resume or a reset of a workflow that had ended, Follow
// with the last ID yields what came since.
//
// An event of this engine is yielded at once. One of another process is yielded when the store says that there
// is something, if it is a storage.Watcher, or within Config.PollInterval. A caller that takes its time delays
// nobody else.
//
// An error ends the sequence. An *EventsGoneError means that events were lost to this caller, because a
// workflow that continues as new removes the history of the life before. While this engine executes the
// workflow, that happens only to a caller that is a thousand checkpoints or a MiB behind, after a commit
// whose outcome was unknown at first, and if the last commit before was made elsewhere. ErrNotFound means that there is no such workflow, or that it was purged
// before its last event was yielded. If ctx ends, the error is an *InterruptedError. Others: ErrInvalid for an
// after that is no ID of an event, ErrClosed, storage.ErrCorrupt, the store's.
func (e *Engine) Follow(ctx context.Context, id, after string) iter.Seq2[Event, error] {
	return e.reader.Follow(ctx, id, after)
}

// ReadStream yields the chunks of a stream of a workflow. Package stream calls it; use stream.Stream.Read.
func (e *Engine) ReadStream(ctx context.Context, id, name string, at int64) iter.Seq2[stream.Stored, error] {
	return e.reader.ReadStream(ctx, id, name, at)
}

// DecodeChunk decodes what ReadStream yields into v, a pointer. Package stream calls it.
func (e *Engine) DecodeChunk(ctx context.Context, c stream.Stored, v any) error {
	return e.reader.DecodeChunk(ctx, c, v)
}

// Signals yields the signals of a workflow that are not consumed, also after the workflow
// has ended. First come the accepted ones, in the order of acceptance, then those whose
// acceptance is indeterminate. An error ends the sequence: ErrNotFound, ErrInvalid,
// ErrClosed, the store's.
func (e *Engine) Signals(ctx context.Context, id string) iter.Seq2[SignalInfo, error] {
	return e.reader.Signals(ctx, id)
}

// Engines returns the incarnations that use the store, and those that did so lately or
// still own runs, the oldest first. If the records of some are damaged, it returns the
// others together with an error that names these.
func (e *Engine) Engines(ctx context.Context) ([]EngineInfo, error) {
	return e.reader.Engines(ctx)
}

// ActiveDeployment returns the deployment on which new runs of Pinned workflows start.
// Errors: ErrNoActiveDeployment, ErrClosed, the store's.
func (e *Engine) ActiveDeployment(ctx context.Context) (string, error) {
	return e.reader.ActiveDeployment(ctx)
}

// Resolve sets the outcome of an activity with an idempotency key, if an operator knows
// it. The operation is the one that the workflow's Attention names. The answer is
// activity.CompletedWithResult, activity.CompletedResultUnavailable, activity.Failed, or
// activity.NotCompleted. After NotCompleted the activity is attempted again, within its
// limits. The answer is durable when Resolve returns, and the history records it with
// who gave it and why.
//
// Resolve also decides what follows if a Compensate has failed permanently and the
// reason of the Attention is ReasonUncompensated, for an operation such as "3.undo". After
// activity.NotCompleted the Compensate is attempted again, with all its attempts.
// activity.CompletedWithResult[any](nil) means that the call is undone, and
// activity.Failed that it will not be. After these two the workflow undoes what is left,
// and ends.
//
// A wrong answer can be corrected with another call of Resolve as long as the run has not
// recorded the first one, for example while no engine executes it. Later the error is
// ErrNotApplicable.
//
// An answer that is given before the outcome of the activity or of its verifier is known
// takes precedence. NotCompleted is accepted only if the Attention names the operation,
// because otherwise an attempt may be in progress. Errors: ErrNotApplicable if there is
// no such operation, it has its outcome, a reset has passed over it, or no Attention names it where that is required;
// ErrInvalid for an answer that an operator cannot give, or a result that is too large or
// not of the activity's type; a *TerminalError for a workflow that has ended, which must
// be resumed first; ErrNotFound, ErrClosed, storage.ErrFutureFormat if only a newer release understands the
// workflow.
//
// This engine knows the result type of an activity in Config.Activities, and of one that
// its runs have called. It also takes a json.RawMessage that can be decoded as the type.
// If it does not know the type, as in a client, the engine that executes the workflow
// decodes the result before it becomes the outcome. If that fails, the answer is
// withdrawn, and the workflow's Attention names the operation again, with the expected
// type. Then call Resolve again.
func (e *Engine) Resolve(ctx context.Context, id, operation string, a activity.Answer, by Actor) error {
	return e.admin.Resolve(ctx, id, operation, a, by)
}

// Label changes labels of a workflow, also of one that has ended: those that labels names. An
// empty value removes one. What is changed is in the next Page. The history of a workflow that has
// not ended records who did this and why. Labels that are as they should be are not written.
//
// Errors: ErrInvalid for labels that StartOptions cannot have, and if the workflow would have too
// many; ErrNotFound, ErrClosed, storage.ErrFutureFormat if only a newer release understands the
// workflow, the store's.
func (e *Engine) Label(ctx context.Context, id string, labels map[string]string, by Actor) error {
	return e.admin.Label(ctx, id, labels, by)
}

// Resume makes a workflow that has failed, or one that is held for Attention, continue
// from its last checkpoint. The history records who did this and why.
//
// A failed workflow is running again, and its history is replayed. This takes back
// its end, and the failures of activities and steps after which it had started nothing
// else. These are attempted again, with all their attempts and all their time. If they
// have an idempotency key, their verifier or an operator (see Resolve) must permit it
// first. Other failures stay, such as one after which the workflow cleaned up. So do ends
// of children, time limits that have passed and cancellation requests: with these, only
// changed code can end the workflow differently. Signals are accepted again from
// then on. A workflow of a queue waits there again, at the end of the line.
//
// If two calls resume a failed workflow at once, one of them may get ErrNotApplicable, because
// the workflow is running again.
//
// A workflow that has undone its calls (see activity.Activity.Compensate) cannot be
// resumed, because it would build on effects that are gone. Start another one.
//
// Errors: a *TerminalError for a workflow that completed or was cancelled;
// ErrNotApplicable for one that is running and not held, for one that has undone its
// calls, for a child whose parent has been told how it ended (a parent that had ended
// or continued as new before was not told), and after it was resumed a hundred times; a *signal.TokenError if another run
// has the token of one of its hooks by now; ErrNotFound, ErrInvalid, ErrClosed, storage.ErrFutureFormat if
// only a newer release understands the workflow, the store's.
func (e *Engine) Resume(ctx context.Context, id string, by Actor) error {
	return e.admin.Resume(ctx, id, by)
}

// ClearSignal removes a signal that is not consumed from a workflow's inbox. The
// acceptance of the signal is still remembered. ClearSignal also removes a signal whose
// acceptance is indeterminate; then it may be sent again. A run that is held because it
// cannot decode the signal continues. The workflow's record has the action at once, and
// the history has it from the next checkpoint on. Errors: ErrNotApplicable if no such
// signal waits, ErrNotFound, ErrInvalid, ErrClosed, storage.ErrFutureFormat if only a newer release understands
// the workflow.
func (e *Engine) ClearSignal(ctx context.Context, id, name, signalID string, by Actor) error {
	return e.admin.ClearSignal(ctx, id, name, signalID, by)
}

// Purge removes a workflow that has ended, with everything that belongs to it. Its
// id may then be used again, but its numbers are not reused. If this engine has a
// Config.Archive, the workflow is archived first; if that fails, it stays, and Purge returns
// the error. Errors: ErrNotFound, ErrNotApplicable for a workflow that has not ended,
// ErrProtected, ErrInvalid, ErrClosed, storage.ErrFutureFormat if only a newer release understands the
// workflow. If a purge was interrupted, another call of Purge finishes it, or
// the next start of the id, or later an engine.
func (e *Engine) Purge(ctx context.Context, id string, by Actor) error {
	return e.admin.Purge(ctx, id, by)
}

// Delete removes a workflow, with everything that belongs to it, whatever it is doing and
// without archiving it. One that has not ended is terminated first, see Terminate, so its
// children are asked to stop and its parent is told that it was cancelled. What the parent and
// others have recorded of it stays: a result that the parent got, signals that it sent. If a
// Delete was interrupted, the workflow may have been terminated and not removed: call it again.
//
// Errors: ErrProtected, ErrNotFound, ErrInvalid, ErrClosed, storage.ErrFutureFormat if only a newer
// release understands the workflow, the store's.
func (e *Engine) Delete(ctx context.Context, id string, by Actor) error {
	return e.admin.Delete(ctx, id, by)
}

// Protect keeps a workflow from being removed, until Unprotect: retention leaves it, and Purge and
// Delete return ErrProtected. It may be running or have ended, and goes on as before otherwise. It
// can be terminated. Once Protect has returned nil, nobody removes it. Info.Protected has who
// protected it and why, and so has the history of a workflow that has not ended. If it is
// protected already, nothing changes.
//
// Errors: ErrNotFound, ErrInvalid, ErrClosed, storage.ErrFutureFormat if only a newer release
// understands the workflow, the store's.
func (e *Engine) Protect(ctx context.Context, id string, by Actor) error {
	return e.admin.Protect(ctx, id, by)
}

// Unprotect takes back Protect. If the workflow is older than its Retention, an engine removes it
// within about an hour. If it is not protected, nothing changes. The errors are those of Protect.
func (e *Engine) Unprotect(ctx context.Context, id string, by Actor) error {
	return e.admin.Unprotect(ctx, id, by)
}

// Export writes the history of a workflow to w, for enginetest.Replay and for human
// readers. The format is lines of JSON: the first has the workflow and its input, and
// each further one a checkpoint. Payloads that the JSON codec encoded are readable, and
// may be edited before the file is passed on. Those of another codec are written as
// bytes. Of a workflow that has not ended, Export writes the history up to now.
//
// Errors: ErrNotFound, also if the workflow is purged meanwhile, ErrBusy if it continues as new
// meanwhile, ErrInvalid, ErrClosed, storage.ErrCorrupt, the store's, w's. After an error, w has only a part of the history.
func (e *Engine) Export(ctx context.Context, id string, w io.Writer) error {
	return e.reader.Export(ctx, id, w)
}

// Replay checks whether the function of a workflow of this engine agrees with a
// history that Export wrote. It calls the function from its beginning and delivers
// the recorded outcomes until the history ends. It runs no activity and no step, and
// neither reads nor writes the store. See enginetest.Replay.
//
// A *NonDeterminismError means that the function does not do what the history has
// recorded: another operation, an early end, or another end (completed, failed,
// cancelled; results are not compared). If the workflow has not ended, Replay does
// not check what comes after the history. An *InputChangedError means that operations were
// started with an input that differs from the recorded one. Both errors may be
// joined. Other errors: a workflow that Config.Workflows does not have, an input or a
// result that cannot be decoded, storage.ErrCorrupt and storage.ErrFutureFormat for a
// file that is not such a history.
func (e *Engine) Replay(ctx context.Context, history io.Reader) error {
	return e.reader.Replay(ctx, history)
}

// Rehearse replays the workflows that f selects against the code of this engine, and yields for each
// whether it could go on: before a deploy, with the new code, which runs the deploy would hold.
// It runs no activity and no step, and writes nothing. Engines may use the store meanwhile. The
// engine's Run need not be called. Rehearse leaves out workflows that this engine would not
// execute: those of a type that it does not have, those that stay on another deployment, and
// those that have ended, unless f selects their Status.
//
// Rehearsal.Err is nil if the run would go on. It is one of these, perhaps joined:
//
//   - a *NonDeterminismError, or another error of Replay: the run would be held;
//   - an *InputChangedError: the run would go on, and an operation of it would get the outcome
//     that was recorded for another input;
//   - an *UnknownVersionError, or one that wraps storage.ErrFutureFormat: this code would leave the run alone;
//   - storage.ErrCorrupt: a record of the run is damaged, and it is held already;
//   - ErrBusy: nothing is known of the run, because it has continued as new each time that it was read.
//
// It is not checked what the code does after the end of a history. So a run that has come less
// far than its history says may still be held later.
//
// An error ends the sequence: ErrInvalid for an f that is not valid, or for a Filter.Workflow that the
// engine does not have; ErrClosed; ctx's; the store's.
func (e *Engine) Rehearse(ctx context.Context, f Filter) iter.Seq2[Rehearsal, error] {
	return e.reader.Rehearse(ctx, f)
}

// ExportSample exports workflows that f selects, the newest first, so that a test replays them:
// see enginetest.Replay. It exports at most each workflows of a shape. Workflows have the same
// shape if their types are the same, the kinds and names of their operations, their choices of
// versions, and their ends. It calls create with each one that it exports, writes to what create
// returns as Export does, and closes it. It reads the histories of all workflows that f selects.
//
// Errors: ErrInvalid for an f that is not valid, and for an each of less than 1; what create, Write or
// Close returns; those of List and Export. Workflows that are purged meanwhile,
// or that continue as new each time that they are read, are left out.
func (e *Engine) ExportSample(ctx context.Context, f Filter, each int, create func(Info) (io.WriteCloser, error)) error {
	return e.reader.ExportSample(ctx, f, each, create)
}

// Terminate ends a workflow at once, whatever it is doing: also if it is held, waits, undoes
// its effects, ignores its cancellation, or has a damaged history. Its function is not asked,
// nothing is undone, and the workflow is cancelled. From then on no engine records anything for
// it. The contexts of its attempts end with activity.ErrTerminated as soon as their engine
// notices: usually at its next poll, and within half a minute if the function blocks. What an attempt
// has done by then in the outside world stays done. The history names the operations with an
// idempotency key whose outcome was not known, and Info.Cancel has who terminated the workflow.
//
// A parent is told that the workflow was cancelled. Children are asked to stop, unless their
// OnParentEnd is ParentEndAbandon. Its slot of a queue is free. A terminated workflow cannot
// be resumed. Prefer Cancel, which lets the function clean up.
//
// The change is durable when Terminate returns nil, and the history has who made it and why.
// Errors: ErrNotFound, ErrInvalid, ErrClosed, a *TerminalError if it has ended,
// storage.ErrFutureFormat if only a newer release understands it, storage.ErrCorrupt if its
// record or that of its parent is damaged, the store's. After an error of the store the outcome
// is unknown: call it again.
func (e *Engine) Terminate(ctx context.Context, id string, by Actor) error {
	return e.admin.Terminate(ctx, id, by)
}

// Reset takes a workflow back to an earlier point of its history, from where it runs again: with
// corrected code, and with everything that it had learnt by then. The workflow may be running, held,
// parked or ended. The history stays, and has who made the reset and why.
//
// Before is an operation of the history, such as "3", or a branch. The point is directly before the
// first thing that the history says of it; "" is the start. Everything that the history says from
// there on is passed over when the run is executed, as if it had not happened. What had its outcome
// by then is not executed again. The operation before, and what the function begins behind the point,
// is begun anew, as operations with ids that end in ~1, or ~2 after the second reset. So no
// idempotency key that is derived from an operation is used again, while a key of the workflow's own
// is. What had begun and had no outcome by then keeps one that a reconciliation record has, and is
// attempted again otherwise. Effects that happened behind the point are not undone.
//
//   - Signals that were received behind the point are there again, in their places.
//   - Updates that were accepted behind the point are pending again, and their answers are gone. Those
//     that were accepted before the point and answered behind it are answered anew.
//   - Hooks are open that were open at the point, and no others.
//   - Streams keep their chunks. One that was closed behind the point is open.
//   - A child that was begun before the point and ended later is told again; one that still runs is
//     waited for. A child that was begun behind the point is asked to stop, unless it has
//     a ChildOptions.ID: if the function starts a child of that id, type and input, it gets this one, and
//     otherwise the child is asked to stop when the workflow ends.
//   - Versions of changes that were chosen behind the point are chosen again, and values that were
//     set behind it are gone. Labels stay.
//   - A cancellation request that was delivered behind the point is gone, and so is a termination.
//   - Time limits that begin behind the point count from the reset on. Run.Now is as it was.
//   - A workflow of a queue waits there again, at the end of the line.
//
// Errors: ErrNotFound, also if the history has no such operation; ErrNotApplicable for a workflow
// that has not begun, for a child whose parent has been told how it ended, if the workflow has undone
// a call that completed before the point, if what is behind the point does not fit into one commit of
// the store, if the ID of a signal or an update behind the point was used again after it was forgotten, and after a
// hundred resets; a *signal.TokenError if the hook of another workflow has the token of one that was open at the
// point; ErrInvalid, ErrClosed, storage.ErrFutureFormat if only a newer release understands the workflow,
// storage.ErrCorrupt if its history is damaged, the store's. After an error of the store the outcome is
// unknown: look at the history. docs/guides/resets.md says when to use it.
func (e *Engine) Reset(ctx context.Context, id, before string, by Actor) error {
	return e.admin.Reset(ctx, id, before, by)
}

// Activate makes a deployment the active one. Runs of Pinned workflows that have not begun
// will start there, on engines with this Config.Deployment: workflows that are started
// after Activate has returned, and those that were started before and have not begun. Runs
// that have begun stay on their deployment. No engine of the deployment needs to run yet.
// Activating the active deployment does nothing.
//
// Where a control plane keeps a record of the deployment, it has the time of the activation.
//
// The change is durable when Activate returns, and the log has who made it and why. Errors:
// ErrInvalid, ErrClosed. After any other error the outcome is unknown: see ActiveDeployment.
func (e *Engine) Activate(ctx context.Context, deployment string, by Actor) error {
	return e.admin.Activate(ctx, deployment, by)
}

// Rollback makes the deployment active that was active before the current one. Otherwise it
// is like Activate. It goes back one step only. Errors: ErrNotApplicable if no deployment was
// active before, and for a second rollback.
func (e *Engine) Rollback(ctx context.Context, by Actor) error {
	return e.admin.Rollback(ctx, by)
}

// Restored must be called once after the store was restored from a backup, before the
// first engine runs on it. Make sure that none runs already. From then on every fencing
// token of this store is higher than all that it issued before, including those issued
// after the backup was made. The new tokens are higher than any that corresponds to the
// present time of the wall clock, and higher than above, the highest token known from
// elsewhere, such as a table of package fence. If none is known, above is zero.
//
// Restored waits for the end of the second in which it was called. The change is durable
// when it returns, and the log has who made it and why. It applies to every engine that
// starts to run on the store afterwards, whatever its clock says. Calling Restored again
// does no harm. docs/guides/operating.md says what to do under "Backup and restore".
//
// Errors: ErrInvalid, ErrNotApplicable if this engine runs, ErrClosed, the store's. After
// any error other than the first three, call it again.
func (e *Engine) Restored(ctx context.Context, above uint64, by Actor) error {
	return e.admin.Restored(ctx, above, by)
}
