// Package runs has the operations on runs: starts, reads, signals, updates, values, streams, hooks, and bulks of them. A
// client knows a run by its runId; what is answered names no other namespace.
package runs
