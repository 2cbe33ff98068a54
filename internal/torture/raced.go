package torture

// Raced says that the race detector is on: it makes what follows ten times as
// slow, and looks for races and not for rare cases, so fewer rounds do.
func Raced() bool { return raced }
