// Package engine runs durable workflows on a store.
//
// A workflow is an ordinary Go function that gets a [Run]. With it, the function calls
// activities, sleeps, receives signals, and starts children. The outcome of each of these
// operations is committed to the store before the function sees it. After a crash the function
// is called again from its beginning, gets the recorded outcomes, and continues where it
// stopped.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//
//		"github.com/weft-go/weft/engine"
//		"github.com/weft-go/weft/storage/memory"
//	)
//
//	func main() {
//		hello := &engine.Workflow[string, string]{Name: "hello", Func: func(run *engine.Run, name string) (string, error) {
//			return engine.Step(run, "greet", func(context.Context) (string, error) { return "hello, " + name, nil })
//		}}
//		eng, err := engine.New(engine.Config{Storage: new(memory.Store), Workflows: []engine.Definition{hello}})
//		if err != nil {
//			panic(err)
//		}
//		ctx, stop := context.WithCancel(context.Background())
//		defer stop()
//		go eng.Run(ctx)
//		h, err := hello.Start(ctx, eng, "hello-1", "ann")
//		if err != nil {
//			panic(err)
//		}
//		fmt.Println(h.Result(ctx))
//	}
//
// [New] checks the configuration and the store. [Engine.Run] executes runs until its context
// ends. An [Engine] whose Run is not called is a client: it starts, signals and inspects
// workflows that other engines on the store execute. [Engine.In] returns a client that works
// within a transaction of the host. [Config] has all settings. Tools use [Client].
package engine

// The rest is for those who change this module: how a run is executed, which package does what,
// the goroutines and the locks.
//
// # How a run is executed
//
//  1. A start is one commit: the workflow record, the input, and an entry in a list of runs
//     without an owner. If the engine that starts the run may execute it, the same commit
//     makes it the owner (internal/intake, start).
//  2. An engine finds a run that it may execute and claims it with a checkpoint that names
//     the new owner (internal/worker, claim). Every later checkpoint of an owner has three
//     conditions: the workflow record is byte for byte as the owner read it, the last
//     checkpoint exists, and the next number is free (journal.Hold.AppendAt). So two owners
//     never both commit.
//  3. The owner calls the function and delivers the events of the history (internal/run,
//     execution). Then it repeats: collect what has happened (outcomes of attempts, signals,
//     timers, ends of children), decide the next checkpoint (internal/run, decide), commit
//     it, deliver its events, and let the branches of the function continue until all of them
//     wait (internal/run, scheduler).
//  4. A commit is done, refused, or unknown. After a refusal, journal.Judge says whether the
//     owner decides again or has lost the run (internal/run, execution, judged).
//     settle.Commit repeats an unknown commit unchanged until its outcome is certain. Sends
//     (internal/intake, send) and requests (internal/worker, change) look for what they
//     wrote, and decide again if it is not there.
//  5. A run that only waits, and for long enough, is parked: it is removed from memory
//     (internal/run, park, idle; internal/worker, claim, CarryOn). See [Config.ParkAfter]. When the engine
//     stops, or has no room for other runs, no run waits that long. A due time, a signal, the end of a
//     child or a cancellation request brings it back.
//  6. The last checkpoint has the result. If an owner dies, other engines detect that because
//     its lease is not renewed, because its session has ended (internal/worker, session), or
//     because the store has been opened again since (internal/worker, incarnation, vital), and
//     claim its runs (takeover).
//  7. An incarnation that loses its lease ends the contexts of its attempts with
//     activity.ErrLeaseLost (internal/worker, lease, depose), commits nothing more for its
//     runs, waits for the attempts for at most Config.StopTimeout (internal/run, attempt,
//     AwaitAttempts), and Run continues as a new incarnation (internal/worker, worker, live). A run
//     alone is lost when its commit is refused because it has another owner (item 4). The next owner
//     replays the history, and counts an attempt without an outcome as lost (internal/run, execution,
//     deliverEvent): it is repeated, or reconciled first if it has an idempotency key.
//
// # Where to look
//
// A name in parentheses is a package, a file of it, and a function in that file. The larger
// packages say in their documentation which of their files does what.
//
//   - weft, the root package: requests, options, states, events and errors.
//   - engine: what a host and an author of workflows call. It connects the packages below and
//     decides nothing. config checks the configuration; engine has New, Run and Close; client
//     and operator have the other methods of Engine; tx is a client in the host's
//     transaction; run and workflow are what a workflow function is written with; api has the
//     names of package weft; serial checks conditions for OwnershipSingleOwner;
//     events tells of commits.
//   - internal/run: one run in memory. A new kind of operation goes here.
//   - internal/worker: finds runs, claims them, and executes them under a lease. A new
//     periodic duty for runs goes here.
//   - internal/upkeep: keeps the store in order. A new periodic duty for the store goes here.
//   - internal/intake: starts, and signals from outside and from runs.
//   - internal/inspect: what clients and operators see of workflows and engines.
//   - internal/admin: what they change of workflows that exist. A new verb of operators goes
//     here.
//   - internal/schedule: schedules. Its duty starts their workflows; internal/cron computes the times.
//   - internal/bulk: one operation on many workflows.
//   - internal/retention: removes workflows that ended long enough ago.
//   - internal/admission: how many runs of a queue execute, and how often one begins.
//   - internal/membership: the record of an engine, and the time that has certainly passed.
//   - internal/limits: how many attempts may run, and how often they may start.
//   - internal/payload: codecs, digests, and the checks of sizes and names.
//   - internal/waiting: the error of a call that could not finish. internal/trail: which
//     entries the poll need not read again. internal/export: the format of exported
//     histories. internal/follow: who follows the events of a run.
//     internal/chunks: the records of streams, and who reads them.
//   - internal/journal: the records of a workflow and the conditions of its commits.
//     internal/acceptance: the records of signals. internal/reconcile: what follows an
//     attempt of unknown outcome.
//   - internal/meta: the records about the store as a whole.
//   - internal/keys: all keys of the store. internal/record: how a record is encoded.
//   - checkpoint, signal, stream, activity and future: what users see of these.
//
// Package control serves an engine over HTTP, world serves TypeScript workflows, and package idempotency works
// without an engine. Their documentation has such a part, too, or that of the package below internal that does the work.
// A signal that comes over HTTP goes from control to [Engine.SendSignal] (internal/intake, send).
//
// Calls go down: from engine to schedule, bulk, retention, upkeep, admin, inspect and intake, from
// the first three to the last three, from admin to inspect, from these to worker, from worker to
// run, and from all of them to the rest. run calls its worker only through the interfaces Owner and
// Peers (internal/run, host).
//
// # Goroutines
//
//   - The caller of Run polls, and stops the incarnation when the context ends. It returns
//     when all goroutines of the incarnation have ended. The exception is user code that
//     ignores the end of its context for Config.StopTimeout: it is abandoned and logged.
//   - One renews the lease (worker, lease), on a store that several processes share. Run
//     starts it, and ends it when all others of the incarnation have ended. A timer ends the incarnation if the
//     lease is not renewed in time. One holds the session (worker, session), if the store is a storage.Prover;
//     live ends it after the lease.
//   - One executes suspects (worker, suspect), and one waits for writes to each list that the
//     store can watch (worker, listen). Run starts them, and they end with its context.
//   - Up to 64 claim runs (worker, crew), while the poll waits for them, and up to 64 claim
//     suspects.
//   - Up to 200 serve schedules that are due (schedule, fire), while the poll waits for them.
//   - One carries out each bulk of this engine, at most 10 of the host and of each namespace (bulk, serve).
//   - The driver of each run (worker, claim, Launch). It ends when the run has ended, is
//     parked, is held or has another owner, and when its incarnation stops or loses its
//     lease. When an attempt runs in the driver's goroutine and something else happens,
//     another goroutine becomes the driver (run, inline_attempt).
//   - One for each branch of a workflow function (run, scheduler). Only the branch that has
//     the turn runs. When the driver ends, those that are left are ended with runtime.Goexit.
//   - One for each attempt (run, attempt), unless the driver executes it (run,
//     inline_attempt), and one for each call of a verifier (run, reconcile). They are waited
//     for before the run is released, for StopTimeout at most if the engine stops.
//   - One for each stream that attempts of a run write to, while something is not stored (run, stream). It is
//     waited for like the attempts.
//   - One that waits for the attempts of a run when its driver ends (run, attempt).
//   - Short ones for user code that might end its goroutine: decoders (run, handle, readable),
//     functions in a transaction (run, transact), and checks of updates (run, update, check).
//   - Up to 63 that read the workflows of a page (inspect, page), while the call waits for them.
//   - One that completes the lists of workflows after an earlier release has used the store
//     (upkeep, lists).
//   - One that removes what has expired, such as the IDs of signals, while there is any (upkeep, expire).
//   - One for each terminated workflow whose children are to be asked to stop, at most 16, and one that
//     goes through these workflows (upkeep, dismiss).
//   - One that removes workflows older than their retention, while there are any (retention, duty),
//     and up to 64 that read them for it, or with Config.Archive 16 that read and archive them. One for
//     each call of Config.Archive (inspect, archive), which is abandoned like other user code.
//   - One watches the history for each call of Follow (inspect, events), if the store is a
//     storage.Watcher. Follow waits for it.
//   - One for each stream that is read (chunks, tail), and one for each of its keys, if the store is a
//     storage.Watcher. The last reader waits for them.
//   - One measures the scheduling delay of goroutines (limits, gate, probe), while attempts
//     wait to start or more than a few are in progress.
//   - Timers: the ends of attempts and of verifier calls, heartbeats, rates of activities,
//     the next measurement (limits, gate), Config.StopTimeout.
//
// # Locks
//
// A goroutine that holds worker.Worker.mu may lock worker.Incarnation.mu, and no other mutex.
// Every other mutex is a leaf: a goroutine that holds it locks no other, does no I/O and calls
// no user code. The exception is serial, which holds the stripes of a batch's keys, in their
// order, while it reads and commits. A build with the tag weftlocks checks this for all
// mutexes of package lock. The state of an execution has no lock: it belongs to the driver,
// and to the branch that has the turn while the driver waits for it.
//
// Callbacks of Config.Events and the Propagator are user code: that build also checks that no
// lock is held when one is called.
