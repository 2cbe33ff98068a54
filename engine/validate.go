package engine

import (
	"fmt"
	"unicode/utf8"

	"github.com/weft-go/weft/internal/keys"
)

func checkID(id string) error       { return checkName("workflow id", id, keys.MaxID) }
func checkSignalID(id string) error { return checkName("signal id", id, keys.MaxSignalID) }

// checkName validates a string that becomes part of a key. Lengths are in bytes
// before escaping.
func checkName(what, s string, most int) error {
	switch {
	case len(s) > most:
		return invalid(what, s, fmt.Sprintf("has %d bytes, at most %d", len(s), most))
	case s == "":
		return invalid(what, s, "is empty")
	case !utf8.ValidString(s):
		return invalid(what, s, "is not UTF-8")
	}
	return nil
}

const maxReason = 4096
