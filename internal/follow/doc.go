// Package follow tells who follows a log in the store that something was appended to it. A log is a range
// of keys that end with a number, such as the checkpoints of a run. Who waits for single keys to be written is
// told, too.
//
// A [Hub] knows what was committed in this process only, by the [Store] that tells it. What other
// processes append is found by a storage.Watcher or by looking now and then. A Hub is a hint, but for two
// things: it keeps what was appended last, for a follower who comes when it was deleted again, and it tells
// what was written to single keys, see Follower.Heard.
package follow
