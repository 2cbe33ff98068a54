// Package world is the back end of a TypeScript workflow runtime, on a store of Weft.
//
// The npm package workflow runs workflows that are written in TypeScript. What it stores it leaves to a "world": the log of
// events of each run, the queues that carry its messages, and streams. [Open] returns a world on a store, and
// [World.Handler] serves it over HTTP to the runtime's processes.
//
//	w, err := world.Open(store, &world.Options{Deployment: active, Retention: 30 * 24 * time.Hour})
//	...
//	defer w.Close()
//	go w.Run(ctx) // removes what has expired
//	mux.Handle("/v1/", w.Handler())
//
// The handler does not authenticate anybody. Put authentication in front of it, as package control does, or as examples/world does
// with a token.
//
// A world needs a store and no engine. Any number of processes may serve the same store at once, if the store admits them: all
// state is there. The store needs conditional batches; Open returns a *storage.CapabilityError for one without.
//
// # What is promised
//
// An event that was answered is in the log once, and what follows from it was committed with it. A call that is sent again,
// because its answer was lost, is answered as the first one was. A message is delivered at least once, in no order, until
// it is acknowledged. A chunk that was answered is in its stream once, and those of one writer are in order.
//
// How durable that is, is what the store promises: see docs/guides/world.md.
package world
