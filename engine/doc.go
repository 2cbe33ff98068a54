// Package engine runs durable workflows on a store.
//
// A workflow is an ordinary Go function that gets a [Run]. With it, the function calls
// activities, sleeps, receives signals, and starts children. The outcome of each of these
// operations is committed to the store before the function sees it. After a crash the
// function is called again from its beginning, gets the recorded outcomes, and continues
// where it stopped.
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
// [New] checks the configuration and the store. [Engine.Run] executes runs until its
// context ends. An [Engine] whose Run is not called is a client: it starts, signals and
// inspects workflows that other engines on the store execute. [Engine.In] returns a client
// that works within a transaction of the host. [Config] has all settings. Tools use
// [Client].
//
// # How a run is executed
//
//  1. A start is one commit: the workflow record, the input, and an entry in a list of
//     runs without an owner. If the engine that starts the run may execute it, the same
//     commit makes it the owner.
//  2. An engine finds a run that it may execute and claims it with a checkpoint that names
//     the new owner. Every later commit of an owner has three conditions: the workflow
//     record is byte for byte as the owner read it, the last checkpoint exists, and the next
//     number is free (checkpoint.Hold.Append). So two owners never both commit.
//  3. The owner calls the function and delivers the events of the history. Then it repeats:
//     collect what has happened (outcomes of attempts, signals, timers, ends of children),
//     decide the next checkpoint, commit it, deliver its events, and let the branches of
//     the function continue until all of them wait.
//  4. A commit is done, refused, or unknown. After a refusal, checkpoint.Judge says whether
//     the owner decides again or has lost the run. checkpoint.Settle repeats an unknown
//     commit unchanged until its outcome is certain. Sends (send) and requests (change) look
//     for what they wrote, and decide again if it is not there.
//  5. A run that only waits is parked after [Config.ParkAfter]: it is removed from memory.
//     A due time, a signal, the end of a child or a cancellation request brings it back.
//  6. The last checkpoint has the result. If an owner dies, other engines detect that by
//     its lease, or because its store was opened anew, and claim its runs.
//  7. An incarnation that loses its lease ends the contexts of its attempts with
//     activity.ErrLeaseLost (lease, depose), commits nothing more, waits for the attempts for
//     at most Config.StopTimeout (attempt, awaitAttempts), and Run continues as a new
//     incarnation (engine, live).
//
// # Where to look
//
// The API of the package:
//
//   - config, validate, errors, events, client, codec: what a host configures and gets.
//     engine: New, Run and Close.
//   - workflow, run, branch, select, scope: what a workflow function works with.
//   - tx: a client in the host's transaction. result, inspect, engines: what a client waits
//     for and sees. load reads the records. export writes histories to files, and
//     replay_check compares one with the current code.
//
// One run in memory:
//
//   - execution is the run. Its driver is the goroutine that runs execution.loop.
//   - message defines what other goroutines tell the driver; mailbox is the queue for it.
//   - decide collects what has happened and makes the next checkpoint from it.
//   - scheduler gives the branches of the function their turns, one at a time.
//   - operation is what a branch started: an activity, a step, a timer, a receive, a child.
//     identity defines what a replay compares of it, and snapshot what is kept of its
//     input.
//   - attempt runs an activity or a step; inline_attempt runs it in the driver's goroutine.
//     heartbeat stores its progress. unresponsive reports an attempt that does not return
//     in time. reconcile finds out the outcome of an activity with an idempotency key.
//     transact is a step in a transaction of the store. compensate undoes calls. child,
//     inbox, send and forward implement children and signals.
//   - park decides when a run that only waits is parked. claim (carryOn) removes a run from
//     memory, however its execution ended. watchdog reports a function that blocks. fifo is
//     a queue type.
//
// A new kind of operation needs a constant in operation; what a replay compares of it, in
// identity; its start, and how its outcome is given to the function, in run; an event kind in
// package checkpoint, which decide records and execution (deliverEvent) delivers. If something
// outside reports its outcome, it needs a message, and if a parked run must be woken for it, a
// case in park.
//
// One incarnation of an engine on a store, from the start of Run to its end:
//
//   - incarnation is its state. lease renews its record and detects dead incarnations.
//     fleet knows the others that are alive. witness tracks the time that has certainly
//     been reached.
//   - poll calls duties: fleet, takeover (runs of dead engines), unclaimed, queue, wake,
//     expire, deployment, meta (the stamp of the store), housekeeping, watchdog; also claim
//     (commits that are still in doubt), send (signals that may come late) and poll itself
//     (jumps of the clock). Further periodic work is a new duty: a file, its state as a field
//     of incarnation, and a line in poll. Every engine runs all duties, one after the other,
//     and two engines may do the same at once; so a duty limits its work per look (see
//     expire). listen makes the poll look at once when the store reports a write. passed
//     remembers what a duty need not read again.
//   - claim makes this engine the owner of a run, and crew claims several at a time.
//     suspect quarantines runs that kill their process. gate and permit limit the attempts in progress.
//
// Requests from outside, and what operators do:
//
//   - start writes starts. send writes signals, and deliver hands a signal to a run that
//     waits in memory. If the run is parked, claim_on_signal claims it in the same commit, or
//     wakeUp (claim) writes an entry that the duty unclaimed of some engine finds. waiting
//     adds to the error of an interrupted call what it waited for.
//   - cancel, resolve, resume, signals, purge, deployment: requests to a workflow. change is
//     the loop that commits such a request. audit records who acts, and why. restored: the
//     floor that is set after a backup was restored.
//
// In every room, serial and retry_reads wrap the store. Package checkpoint has the records of
// a workflow and the conditions of its commits, package signal those of signals, and package
// activity decides what follows an attempt of unknown outcome.
//
// # Goroutines
//
//   - The caller of Run polls, and stops the incarnation when the context ends. It returns
//     when all goroutines of the incarnation have ended. The exception is user code that
//     ignores the end of its context for Config.StopTimeout: it is abandoned and logged.
//   - One renews the lease (lease), on a store that several processes share. Run starts it,
//     and ends it last. A timer ends the incarnation if the lease is not renewed in time.
//   - One executes suspects (suspect), and one runs for each list that the store can watch
//     (listen). Run starts them, and they end with its context.
//   - Up to 64 claim runs (crew), while the poll waits for them.
//   - The driver of each run (claim, launch). It ends when the run has ended, is parked,
//     is held or has another owner, and when its incarnation stops or loses its lease. When an attempt runs in the driver's goroutine and something else
//     happens, another goroutine becomes the driver (inline_attempt).
//   - One for each branch of a workflow function (scheduler). Only the branch that has the
//     turn runs. When the driver ends, the others are ended with runtime.Goexit.
//   - One for each attempt (attempt) and each call of a verifier (reconcile). The driver
//     waits for it before it releases the run.
//   - One that waits for the attempts of a run when its driver ends (attempt).
//   - Short ones for user code that might end its goroutine: decoders (run, readable) and
//     functions in a transaction (transact).
//   - One measures the scheduling delay of goroutines (gate, probe), while attempts wait
//     to start or more than a few are in progress.
//   - Timers: the ends of attempts and of verifier calls, heartbeats, rates of activities,
//     the next measurement (gate), Config.StopTimeout.
//
// # Locks
//
// A goroutine that holds Engine.mu may lock incarnation.mu, and no other mutex. Every other
// mutex is a leaf: a goroutine that holds it locks no other, does no I/O and calls no user code.
// The exception is serial, which holds the stripes of a batch's keys, in their order,
// while it reads and commits. A build with the tag weftlocks checks this (internal/lock).
// The state of an execution has no lock: it belongs to the driver, and to the branch that
// has the turn while the driver waits for it.
package engine
