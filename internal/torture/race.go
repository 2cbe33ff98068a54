//go:build race

package torture

// raced: the race detector makes SQLite, which is Go code here, ten times slower.
const raced = true
