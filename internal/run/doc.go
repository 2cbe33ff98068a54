// Package run executes one workflow run in memory. It replays the history, gives the branches
// of the workflow function their turns, decides the next checkpoint and commits it.
//
// [Execution] is the run. Its driver is the goroutine that executes its loop (execution). The driver repeats: collect what
// has happened, decide the next checkpoint from it (decide), commit it, deliver its events (execution, deliverEvent), and
// let the branches of the function continue until all of them wait (scheduler).
//
// What a run needs from others: [Env] has the values that never change (env), [Host] what the
// runs of one engine share, and two interfaces beside it (host): [Owner] is the incarnation that
// owns the run, and [Peers] is what a run asks about other runs.
//
// The files, by what they are about:
//
//   - handle: what a workflow function calls. branch, scope and select belong to it.
//     definition is a workflow without its type parameters.
//   - message has what other goroutines tell the driver, and mailbox the queue for it.
//   - operation is what a branch started, kind says what the operations of a kind have in
//     common, and identity what a replay compares of them.
//   - timer is a kind of operation, and so are those in the next two lines.
//   - attempt executes an activity or a step; inline_attempt does so in the driver's
//     goroutine. permit asks for places and rates. heartbeat stores the progress of an
//     attempt. unresponsive reports an attempt that does not return in time. reconcile finds
//     out the outcome of an activity with an idempotency key. compensate undoes calls.
//     transact is a step in a transaction of the store.
//   - prepared has a start before it is written. child, inbox, deliver, incoming and forward
//     implement children and signals. pinned binds a run to a deployment.
//   - park decides when a run that only waits leaves memory. wakeup has an entry that makes
//     an engine look at a run. probation watches a run whose owner has died. watchdog has the
//     stack of a function that does not return to the engine. retaken is what follows when an
//     operator has resumed the run.
//   - update executes what the run is asked to do, and answers.
//   - riders stores what the function asks for that is no operation: versions, labels, and values
//     that others read. passed tells a replay whether the function was behind a place before.
//   - events calls the host's callbacks, and its propagator, which carries the context of a start.
//   - rehearse compares a function with a history, without a store. load reads records.
//
// A new kind of operation is a file with its state and its start. It needs further:
//
//   - operation: a field for its state; kind: an entry that says how its outcome is given to the function, and a place in the list;
//     identity: what a replay compares of it beside its name.
//   - decide: setGoing begins it, or decide finds out that what it waits for has happened. Either adds its event.
//   - If the event is of a new kind (package checkpoint): execution, where understands knows it and deliverEvent delivers it;
//     difference, where isOutcome knows it; and an ability in internal/journal, so that an earlier release leaves the run alone.
//   - message, if something outside reports its outcome; park, if a run that waits for it stays in memory, or must be woken for it.
//   - internal/admin, reset, if it leaves records that a reset takes back.
//   - A method of engine.Run, or of the package for which it is.
package run
