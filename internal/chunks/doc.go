// Package chunks stores streams. A stream is a [Log]: chunks, numbered from 0 without gaps, and a [Head]
// with how many there are.
//
// [Head.Append] and [Head.Close] decide, without I/O, what is written. Each has the condition that the head is
// unchanged; whoever commits it adds that the writer may still write. [Commit] settles an unknown
// outcome of an append. A [Tail] tells all readers of a log in this process when there is more.
package chunks
