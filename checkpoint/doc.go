// Package checkpoint is a workflow run's durable state: the workflow record, the
// checkpoints that follow each other by number, and the fenced commit that
// appends one.
//
// Whatever an owner writes about a run, from its claim to its end, is a
// checkpoint. One is appended by a batch that holds only if the workflow record
// is byte for byte what the owner read, the last checkpoint is there, and the
// next number is free. That insertion is the compare-and-swap; the workflow
// record carries owner and claim, which makes it the fence.
//
// What to write is decided by functions without I/O ([Hold.Append], [Claim],
// [Judge]); one call, [Commit], writes it and resolves an unknown outcome.
package checkpoint
