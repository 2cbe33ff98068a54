package torture

import "os"

// Raced reports whether the race detector is on. It makes tests ten times slower, and is meant
// to find races rather than rare cases, so tests can use fewer rounds.
func Raced() bool { return raced }

// Rounds returns how many rounds a test has: many with WEFT_TORTURE, few with the race detector, and
// otherwise what the gate has without it.
func Rounds(many, usual, few int) int {
	switch {
	case os.Getenv("WEFT_TORTURE") != "":
		return many
	case raced:
		return few
	}
	return usual
}
