// Package admission limits how many runs of a queue execute at a time, and how often one begins. A
// [Door] reads the slots and the rate of the queue, and gives a [Ticket] for each run that may be
// claimed. The claim takes the slot and records the admission in the same commit, so engines that
// look at once never admit too many.
package admission
