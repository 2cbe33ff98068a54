// Package upkeep keeps a store in order, as part of each poll of an engine: it removes what has
// expired (expire, former_lives), asks the children of terminated workflows to stop (dismiss),
// removes the records of engines that are gone (housekeeping), completes the lists that an earlier
// release has written (lists), and stops the engine if a newer release has upgraded the store
// (stamp).
//
// Every engine does all this, and two may do the same at once. A task that may find much does it in a
// goroutine, because the poll must go on.
package upkeep
