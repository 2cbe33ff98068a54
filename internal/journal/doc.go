// Package journal manages the durable state of a workflow run: the workflow record, the
// consecutively numbered checkpoints, and the fenced commit that appends one.
//
// Whatever an owner writes about a run, from its claim to its end, is a checkpoint. A
// checkpoint is appended by a batch with these conditions: the workflow record is byte for
// byte what the owner read, the last checkpoint exists, and the next number is free. This
// insertion is a compare-and-swap. The workflow record contains owner and claim, so it
// fences off earlier owners.
//
// Functions without I/O decide what to write ([Hold.Append], [Hold.Claim], [Create], [Judge]).
// One call, [Commit], writes it and resolves an unknown outcome.
package journal
