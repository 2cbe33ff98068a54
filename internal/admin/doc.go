// Package admin does what clients and operators ask for about workflows that exist (result,
// payloads, events, cancel, terminate, resolve, resume, signals, purge, delete, protect, archive, inspect,
// export, replay_check, rehearse),
// about engines (engines), deployments (deployment) and the store (restored).
//
// A new verb that changes a running workflow uses the loop in package worker, Change, and the
// functions in audit, which record who acts and why. The verb decides a new record of the
// workflow (Worker.Rewritten, as resolve does), or a checkpoint of its own (as resume does for
// a workflow that has failed, and terminate for any that has not ended).
package admin
