// Package engine runs durable workflows on a store.
//
// A workflow is an ordinary Go function. It works with a [Run]: it calls activities,
// sleeps, receives signals, starts children. The outcome of each of these operations is
// committed to the store before the function sees it. After a crash the function is called
// again from its beginning, gets the recorded outcomes, and goes on where it was.
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
// [New] checks the configuration and the store. [Engine.Run] drives runs until its context
// ends. An [Engine] that is not run is a client: it starts, signals and inspects workflows
// which other engines on the store drive. [Engine.In] is a client within a transaction of
// the host. [Config] has all settings; [Client] is what tools need.
//
// # How a run goes
//
//  1. A start is one commit: the workflow record, the input, and an entry in a list of
//     runs that nobody owns. If the engine that starts may drive the run, it owns the run
//     from the same commit on.
//  2. An engine finds a run that it may drive and claims it: a checkpoint that names the
//     new owner. Every later commit of an owner has the condition that its claim, and the
//     checkpoint before, are still there. So two owners never both commit.
//  3. The owner calls the function and delivers what the history has. Then it repeats:
//     take in what has happened (answers of attempts, signals, timers, ends of children),
//     decide one checkpoint of it, commit it, deliver its events, and let the branches of
//     the function go on until all of them wait.
//  4. A commit is done, refused, or unknown. A refused one ends the ownership. An unknown
//     one is repeated as it was until its outcome is certain.
//  5. A run that only waits is parked after [Config.ParkAfter]: it leaves memory, and comes
//     back by a due time, a signal, the end of a child or a request to stop.
//  6. The last checkpoint has the result. An owner that dies is found by the others, by its
//     lease or because its store was opened anew, and its runs are claimed.
//
// # Where to look
//
// The face of the package, which decides nothing:
//
//   - config, validate, errors, events, client, codec: what a host configures and gets.
//   - workflow, run, branch, select, scope: what a workflow function works with.
//   - tx: a client in the host's transaction. result, cancel, inspect, signals, engines,
//     purge: what a client waits for, asks for and sees; load reads the records. export
//     and replay_check: histories as files, and whether today's code agrees with one.
//
// One run in memory:
//
//   - execution is the run; its driver is the goroutine that has execution.loop.
//   - message is what other goroutines tell the driver, and mailbox is where they leave it.
//   - decide takes in what has happened, and makes the next checkpoint of it.
//   - scheduler gives the branches of the function their turns, one at a time.
//   - operation is what a branch began: an activity, a step, a timer, a receive, a child.
//     identity says what of it is compared in a replay, snapshot what of its input is kept.
//     A new kind of operation begins there, with its recording in decide.
//   - attempt runs an activity or a step; inline_attempt runs it in the driver's goroutine.
//     heartbeat is its progress, unresponsive what does not return in time. reconcile finds
//     out what became of an activity with a key. transact is a step in the store's
//     transaction. compensate undoes. child, inbox, send and forward are children and
//     signals.
//   - park decides when a run leaves memory. watchdog reports a function that blocks.
//
// One life of an engine on a store, from Run to its end:
//
//   - life is an incarnation; lease keeps its record alive and finds out who is dead;
//     fleet knows the others that live; witness knows how far time has come for certain.
//   - poll calls duties, each with its own file and state: fleet, takeover (runs of dead
//     engines), unclaimed, queue, wake, expire, deployment, meta (the stamp of the store),
//     housekeeping, watchdog. What an engine is to look after next is a new duty there.
//     watch has the poll look at once when the store tells of a write. passed remembers
//     what a duty need not read again.
//   - claim makes a run this engine's, and crew claims several at a time. suspect
//     quarantines runs that kill their process. restored heeds the floor that a restored
//     backup has. gate and permit bound how many attempts are under way.
//
// What comes from outside into a run, and what operators do:
//
//   - start, send and deliver write starts and signals; claim_on_signal claims a parked run
//     in the commit of the signal. waiting makes the errors of calls that waited tell why.
//   - cancel, resolve, retry, signals, deployment: what is asked of a workflow. change is
//     the loop that commits such a request. audit records who acts, and why.
//   - serial and retry_reads wrap the store.
//
// # Goroutines
//
//   - The caller of Run polls, and stops the life when the context ends. It returns when
//     all goroutines of the life have ended, but for user code that does not heed its
//     context within Config.StopTimeout, which is left behind and logged.
//   - Renewals of the lease (lease), on a store that several processes share: begun by
//     Run, ended by it last. A timer beside them ends the life when the lease was not
//     renewed in time.
//   - One that drives suspects (suspect), and one for each list that the store can watch
//     (watch): begun by Run, ended by its context.
//   - Up to 64 that claim (crew), while the poll waits for them.
//   - The driver of each run (claim, launch). It ends when the run has ended, is parked, or
//     has another owner. When an attempt runs in the driver's goroutine and something
//     happens meanwhile, another goroutine becomes the driver (inline_attempt).
//   - One for each branch of a workflow function (scheduler). Only the branch that has the
//     turn runs. When the driver ends, the others are ended with runtime.Goexit.
//   - One for each attempt (attempt) and each question to a verifier (reconcile). Its driver
//     waits for it before it gives up the run.
//   - Short ones for user code that might end its goroutine: decoders (run, readable) and
//     functions in a transaction (transact).
//   - One that measures how long a goroutine waits for its turn (gate, probe), while
//     attempts wait to begin.
//   - Timers: the ends of attempts, heartbeats, rates of activities, Config.StopTimeout.
//
// # Locks
//
// Whoever holds Engine.mu may take life.mu, and no other. Every other mutex is a leaf:
// whoever holds it takes no other, does no I/O and calls no user code. The exception
// is serial, which holds the stripes of a batch's keys, in their order, while it reads
// and commits. A build with the tag weftlocks checks this (internal/lock). The state
// of an execution has no lock: it belongs to the driver, and to the branch that has
// the turn while the driver waits for it.
package engine
