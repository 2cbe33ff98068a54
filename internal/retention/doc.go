// Package retention removes workflows that ended long enough ago.
//
// Nothing is stored for it. A workflow that has ended is in the list of its type and status
// (ls:{type}:{status}:{time}), in the order in which workflows ended. A [keeper], the duty of one
// engine, goes through these lists from the oldest entry on, as far as they are old enough by the
// configuration of the engine, and removes what may go. It remembers in memory where it was, so
// what has to stay is passed once, and looked at again once an hour.
//
//   - duty decides when to look: see keeper.
//   - list goes through one list.
//   - remove decides what becomes of its entries, and removes several workflows in one commit.
package retention
