// Package journal manages the durable state of a workflow run: the workflow record, the
// numbered checkpoints, and the fenced commit that appends one.
//
// What an owner writes about a run, from its claim to its end, is a checkpoint; only the
// progress of an attempt is not. A checkpoint is appended by a batch with these conditions:
// the workflow record is byte for byte what the owner read, the last checkpoint exists, and
// the next number is free. So a commit is a compare-and-swap. The workflow record contains
// owner and claim, so it fences off earlier owners.
//
// Functions without I/O decide what to write ([Hold.Append], [Hold.Claim], [Create]), and what
// a refused commit means ([Judge]). [Commit] writes it and resolves an unknown outcome.
package journal
