// Package intake writes starts that come from outside of any run, and signals, also those that
// runs send, and has runs answer updates.
//
// start writes a start, and has the worker execute the run if it has room. together does so in one
// commit with what another package has decided. send writes
// signals: those for one workflow that are sent at the same time share a commit. resume
// sends to the hook that has a token. hand_over gives a signal to a run that waits for it in
// memory. If the run is parked, claim_on_signal claims it in the commit that accepts the signal, or the commit writes an entry by which an
// engine finds the run. A parked run that does not wait for a signal of that name is left
// alone. update calls an update: it asks the driver of the run, or stores the update for it, and waits
// for the answer.
package intake
