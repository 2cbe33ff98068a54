// Package worker executes the runs of one engine: it registers the engine, finds runs that it
// may execute, claims them, and hands them over when the engine stops.
//
// [Worker] is the engine's own part, from New to Close: the runs in memory, the room for them
// (capacity), and who waits for their end. [Incarnation] is one execution of Engine.Run, or
// the part of it under one lease: it owns runs.
//
//   - incarnation has the state of an Incarnation, its begin and its end. lease renews its
//     record and detects dead incarnations. fleet knows the others that are alive. events
//     counts what happens.
//   - poll calls duties, in an order that matters: fleet, takeover (runs of dead engines),
//     unclaimed, queue, wake, expire, active_deployment, stamp, housekeeping, lists, stuck; also
//     claim (commits that are still in doubt), late_signals, and poll itself (jumps of the
//     clock). Further periodic work is a new duty: a file, its state as a field of
//     Incarnation, and a line in the function duties. One that needs the packages above is a Duty,
//     which package engine hands to the worker. Every engine runs all duties, one after
//     the other, and two engines may do the same at once; so a duty that may find much limits
//     its work per look (see expire). A duty that needs packages above this one, such as
//     schedules and retention, is in Worker.Duties. listen makes the poll look at once when the store
//     reports a write.
//   - claim makes this engine the owner of a run, starts its driver and removes it from
//     memory when that ends. crew claims several runs at a time. suspect quarantines runs
//     that kill their process.
//   - change is the loop that commits what is asked of a workflow from outside, such as its
//     cancellation.
package worker
