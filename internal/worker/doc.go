// Package worker executes the runs of one engine: it registers the engine, finds runs that it
// may execute, claims them, and hands them over when the engine stops.
//
// [Worker] is the engine's own part, from New to Close: the runs in memory, the room for them (capacity), and who waits for
// their end. [Incarnation] is one execution of Engine.Run, or the part of it under one lease: it owns runs.
//
//   - incarnation has the state of an Incarnation, its begin and its end. lease renews its
//     record and detects dead incarnations. fleet knows the others that are alive. witness knows a
//     time that has certainly passed. events counts what happens.
//   - poll calls duties, in an order that matters: fleet, active_deployment, takeover (runs of
//     dead engines), unclaimed, queue, wake, what package upkeep does for the store, stuck; also
//     claim (commits that are still in doubt), late_signals, and poll itself (jumps of the
//     clock). Further periodic work is a new duty. If it is about runs of this engine, it is a
//     file, its state as a field of Incarnation, and a line in the function duties. Otherwise it
//     belongs to a package above this one, and is in Worker.Upkeep or Worker.Duties. Every engine
//     runs all duties, one after the other, and two engines may do the same at once. listen makes
//     the poll look at once when the store reports a write.
//   - claim makes this engine the owner of a run, starts its driver and removes it from
//     memory when that ends. crew claims several runs at a time. suspect quarantines runs
//     that kill their process.
//   - change is the loop that commits what is asked of a workflow from outside, such as its
//     cancellation.
package worker
