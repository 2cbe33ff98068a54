// Package queue has the queues of the world: one for each deployment, on a store.
//
// A message is delivered at least once, in no order, and stays until a consumer acknowledges it. A
// [Queue] is the view of one process. [Queue.Publish] adds a message, [Queue.Receive] takes some and
// holds them for a while, and [Queue.Settle] acknowledges, extends or gives back what was taken.
//
// There are four kinds of records:
//
//	wmsg:{queue}:{id}           the message, with the number of its deliveries
//	wdue:{queue}:{time}:{id}    it waits, until then
//	wheld:{queue}:{time}:{id}   a consumer holds it, until then
//	wkey:{queue}:{key}          which message was published with a key, when, and by which call
//
// A message that is there has exactly one entry wdue or wheld. Each change of a message is one batch, under the
// condition that the message is as it was read.
//
// Clocks of processes may differ by any amount. That delays a message, or delivers it twice. It loses none.
package queue
