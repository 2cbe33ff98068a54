package torture

// Raced reports whether the race detector is on. It makes tests ten times slower, and is meant
// to find races rather than rare cases, so tests can use fewer rounds.
func Raced() bool { return raced }
