// Package acceptance has the records of signals. It decides the commits that accept a signal
// once ([Accept], [AcceptConsumed]), and finds the answer to one that was accepted before
// ([Earlier]). It reads the inbox of a run ([Inbox]) and decides what a run consumes
// ([Consume]), and when an acceptance is forgotten ([Forget]).
//
// It also has the records of updates ([Update], [Answer]), which have their numbers among those of
// signals. It decides the commit that admits an update ([Admit]), and what belongs to the one that accepts
// or refuses it ([Taken]).
package acceptance
