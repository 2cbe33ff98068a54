// Package admin changes what exists, on behalf of clients and operators: workflows (cancel,
// terminate, reset, resolve, resume, label, signals, protect, purge, delete), the active deployment
// (deployment) and the store (restored). What only reads is in package inspect.
//
// A new verb that changes a running workflow uses the loop in package worker, Change, and the
// functions in audit, which record who acts and why. The verb decides a new record of the
// workflow (Worker.Rewritten, as resolve does), or a checkpoint of its own (as resume does for
// a workflow that has failed, and terminate for any that has not ended).
package admin
