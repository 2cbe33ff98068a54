package payload

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weft-go/weft"
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

// Limits of labels.
const (
	MaxLabels     = 16
	MaxLabelName  = 64
	MaxLabelValue = 128
	MaxLabelBytes = 1024 // all names and values together
)

// ReservedLabels is how the names of labels begin that only Weft itself sets.
const ReservedLabels = "weft."

// CheckLabels validates the labels of a workflow.
func CheckLabels(labels map[string]string) error {
	if n := len(labels); n > MaxLabels {
		return fmt.Errorf("%w: %d labels, at most %d", weft.ErrInvalid, n, MaxLabels)
	}
	if len(labels) == 0 { // to sort nothing would allocate
		return nil
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if err := CheckLabel(name, labels[name]); err != nil {
			return err
		}
		total += len(name) + len(labels[name])
	}
	if total > MaxLabelBytes {
		return fmt.Errorf("%w: labels with %d bytes together, at most %d", weft.ErrInvalid, total, MaxLabelBytes)
	}
	return nil
}

// CheckRelabelled is CheckLabels for a workflow that exists, which may have labels of Weft's own.
// These do not count.
func CheckRelabelled(labels map[string]string) error {
	theirs := maps.Clone(labels)
	maps.DeleteFunc(theirs, func(name, _ string) bool { return strings.HasPrefix(name, ReservedLabels) })
	return CheckLabels(theirs)
}

// CheckLabel validates one label.
func CheckLabel(name, value string) error {
	if err := CheckName("label", name, MaxLabelName); err != nil {
		return err
	}
	if strings.HasPrefix(name, ReservedLabels) {
		return Invalid("label", name, "begins with weft., which is reserved")
	}
	return CheckName(fmt.Sprintf("value of label %q:", name), value, MaxLabelValue)
}

// CheckLabelChange validates a change of one label. An empty value removes the label: then only
// the name counts.
func CheckLabelChange(name, value string) error {
	if value == "" {
		value = "-"
	}
	return CheckLabel(name, value)
}

// CheckFilter validates the strings of a weft.Filter; those that are empty do not count.
func CheckFilter(workflow, parent, idPrefix string, labels map[string]string) error {
	for _, c := range []struct {
		what, s string
		most    int
	}{{"workflow name", workflow, keys.MaxName}, {"workflow id", parent, keys.MaxID}, {"prefix of ids", idPrefix, keys.MaxID}} {
		if c.s != "" {
			if err := CheckName(c.what, c.s, c.most); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		most := MaxLabelValue
		if strings.HasPrefix(name, ReservedLabels) { // its value is an id
			most = keys.MaxID
		}
		if err := cmp.Or(CheckName("label", name, MaxLabelName), CheckName(fmt.Sprintf("value of label %q:", name), labels[name], most)); err != nil {
			return err
		}
	}
	return nil
}
