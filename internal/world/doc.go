// Package world keeps the runs of a TypeScript workflow runtime in a store: for each run a log of
// events, and what follows from it.
//
// A [World] needs a store and no engine. [World.Create] appends an event to the log of a run, and changes the
// run and its steps, hooks and waits in the same commit. The rest reads. It decides what an event does by the
// rules of the runtime's interface, @workflow/world. The runtime replays a run by its log.
//
// The head of a run is small. Payloads are in the events alone: a run, a step or a hook has the numbers of the
// events that have its input and outcome. A commit is made under the condition that the head is as it was read,
// so it protects everything that belongs to the run.
//
// Payloads stay the CBOR that came. They are checked for form, and never decoded.
package world
