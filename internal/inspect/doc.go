// Package inspect shows what is stored about workflows (describe, page, lists, result, values,
// payloads, events, streams, signals), and about engines and deployments (engines). It exports
// histories (export, archive), and replays them against the code of this engine (replay_check,
// rehearse). It changes nothing in the store.
//
// A description also says what the record of a workflow does not: why no engine executes the
// workflow, and what a run that is in memory waits for. A run may change while it is read. Then it is
// read again, or the error wraps weft.ErrBusy.
package inspect
