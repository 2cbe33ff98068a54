// Package acceptance has the records of signals and decides how a signal is accepted once:
// the batch that accepts signals ([Accept]), the answer to one that was accepted before
// ([Earlier]), what a run reads of its inbox ([Inbox]) and consumes ([Consume]), and when an
// acceptance is forgotten ([Forget]).
package acceptance
