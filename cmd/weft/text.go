package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/weft-go/weft"
	remote "github.com/weft-go/weft/client"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/storage"
)

// plain are the characters that a shell takes as they are, apart from letters and digits.
const plain = "_-./:%@+,="

// word returns s as a word of a shell: as it is if it has nothing special, and otherwise
// quoted, so that bash reads it as s again. It contains no control characters.
func word(s string) string {
	bare, printable := s != "", true
	for _, r := range s {
		bare = bare && (strings.ContainsRune(plain, r) || r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)))
		printable = printable && unicode.IsPrint(r) && r != '\''
	}
	switch {
	case bare:
		return s
	case printable:
		return "'" + s + "'"
	}
	q := strconv.Quote(s)
	return "$'" + strings.NewReplacer(`\"`, `"`, `'`, `\'`, `\\`, `\\`).Replace(q[1:len(q)-1]) + "'"
}

// text returns s on one line, without control characters.
func text(s string) string {
	q := strconv.Quote(s)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(q[1 : len(q)-1])
}

// cut returns the beginning of s.
func cut(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// at returns a time for a reader, or "-" for the zero time.
func at(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// exactly returns a time with its milliseconds.
func exactly(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000Z") }

// payload returns a payload for a reader.
func payload(data []byte, codec string, most int) string {
	var compact bytes.Buffer
	if (codec == "" || codec == weft.JSON.Name()) && json.Compact(&compact, data) == nil {
		return cut(text(compact.String()), most)
	}
	if codec == "" {
		codec = weft.JSON.Name()
	}
	return fmt.Sprintf("%d bytes of codec %s", len(data), text(codec))
}

// or returns s, or "-" if it is empty.
func or(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// A table has aligned columns.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, columns ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(columns) > 0 {
		t.row(columns...)
	}
	return t
}

// row adds a row. The caller has made its cells safe to print.
func (t table) row(cells ...string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

// end prints the table.
func (t table) end() { t.w.Flush() }

// printJSON prints v on a line. What a terminal might obey is escaped.
func printJSON(w io.Writer, v any) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	var safe strings.Builder
	for _, r := range strings.TrimSuffix(line.String(), "\n") {
		switch {
		case unicode.IsPrint(r):
			safe.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&safe, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&safe, `\u%04x\u%04x`, high, low)
		}
	}
	_, err := fmt.Fprintln(w, safe.String())
	return err
}

// explained returns an error of a verb, in its group, on one line, with what can be done about it.
func explained(group, verb string, err error) string {
	s := strings.TrimPrefix(strings.TrimPrefix(text(joined(err.Error())), "engine: "), "client: ")
	if answer, ok := errors.AsType[*remote.Error](err); ok {
		return s + advised(answer)
	}
	unfinished, _ := errors.AsType[*weft.InterruptedError](err)
	switch {
	case unfinished != nil && unfinished.Unknown:
		return s + ": see with weft describe whether it happened before you repeat it"
	case errors.Is(err, weft.ErrNotFound):
		return s + ": see " + looking(group, verb)
	case errors.Is(err, weft.ErrExists):
		return s + ": give another id, or the same workflow and input as before"
	case errors.Is(err, storage.ErrFutureFormat):
		return s + ": use the weft command of that release"
	case errors.Is(err, context.DeadlineExceeded):
		return s + ": give more time with --timeout"
	}
	return s
}

// looking says where to look for what a verb has not found.
func looking(group, verb string) string {
	switch {
	case group == "hooks":
		return "whether its workflow waits for it, with weft history"
	case group == "bulk", group == "schedules":
		return "the ids with weft " + group + " list"
	case verb == "reset":
		return "the ids with weft list, and the operations of a workflow with weft history"
	}
	return "the ids with weft list"
}

// advised returns what can be done about an error of a control plane, after a colon.
func advised(e *remote.Error) string {
	switch {
	case e.Unknown:
		return ": see whether it happened before you repeat it"
	case e.Code == remote.CodeNoAnswer:
		return ": check --url, and whether it runs"
	}
	switch wire.Code(e.Code) {
	case wire.CodeUnauthorized:
		return ": check WEFT_KEY or --key-file; weft keys create makes a key"
	case wire.CodeMissingScope:
		return ": use a key with the scope; weft keys create makes one"
	case wire.CodeNoActiveDeployment:
		return ": see weft deployments"
	case wire.CodeRunExists:
		return ": give another id, or the same workflow and input as before"
	case wire.CodeSignalAcceptanceIndeterminate:
		return ": look at it with weft signals list, and clear it"
	}
	return ""
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// joined returns the lines of an error as one.
func joined(lines string) string {
	var one string
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		switch {
		case one == "":
			one = line
		case strings.HasSuffix(one, ":"):
			one += " " + line
		default:
			one += "; " + line
		}
	}
	return one
}
