package payload

import (
	"fmt"
	"unicode/utf8"

	"github.com/weft-go/weft/internal/keys"
)

// CheckID and CheckSignalID validate the id of a workflow and of a signal.
func CheckID(id string) error       { return CheckName("workflow id", id, keys.MaxID) }
func CheckSignalID(id string) error { return CheckName("signal id", id, keys.MaxSignalID) }

// CheckName validates a string that becomes part of a key. Lengths are in bytes
// before escaping.
func CheckName(what, s string, most int) error {
	switch {
	case len(s) > most:
		return Invalid(what, s, fmt.Sprintf("has %d bytes, at most %d", len(s), most))
	case s == "":
		return Invalid(what, s, "is empty")
	case !utf8.ValidString(s):
		return Invalid(what, s, "is not UTF-8")
	}
	return nil
}

// MaxReason is the maximum size in bytes of the name and the reason of an actor together.
const MaxReason = 4096
