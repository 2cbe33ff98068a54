//go:build race

package torture

// raced: the race detector makes SQLite, which is Go here, ten times as slow.
const raced = true
