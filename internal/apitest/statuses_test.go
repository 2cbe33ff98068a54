package apitest

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/internal/pgtest"
)

// statusesFile has a row for every documented answer: the operation, the status, and a test that provokes it.
const statusesFile = "testdata/statuses.txt"

// TestMain runs the tests, and then compares the answers that have occurred with the document and with
// statusesFile. A test that did not run is not missed.
func TestMain(m *testing.M) {
	status := pgtest.Main(m)
	http.DefaultClient.CloseIdleConnections()
	status = leaks.Check(status)
	if status == 0 && len(occurred.began) > 0 {
		if err := checkStatuses(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(status)
}

func topLevel(test string) string {
	name, _, _ := strings.Cut(test, "/")
	return name
}

// checkStatuses says which documented answers no test provokes, and which rows are wrong. With -update it
// writes the rows.
func checkStatuses() error {
	d, err := theDocument()
	if err != nil {
		return err
	}
	rows, err := readStatuses()
	if err != nil {
		return err
	}
	documented := map[pair]bool{}
	for _, o := range d.operations {
		for status := range o.responses {
			documented[pair{o.id, status}] = true
		}
	}
	var problems []string
	for at := range documented {
		test, ok := rows[at]
		tests := slices.Sorted(maps.Keys(occurred.seen[at]))
		switch {
		case *update && len(tests) > 0 && !slices.Contains(tests, test) && (!ok || occurred.began[test] || test == missing):
			rows[at] = tests[0]
		case *update && !ok:
			rows[at] = missing
		case *update:
		case !ok:
			problems = append(problems, fmt.Sprintf("%s %d is documented, and has no row", at.operation, at.status))
		case occurred.began[test] && !slices.Contains(tests, test):
			problems = append(problems, fmt.Sprintf("%s %d did not occur in %s", at.operation, at.status, test))
		case !strings.HasPrefix(test, "Test"):
			problems = append(problems, fmt.Sprintf("%s %d occurs in no test", at.operation, at.status))
		}
	}
	for at := range rows {
		if _, ok := documented[at]; !ok {
			if *update {
				delete(rows, at)
				continue
			}
			problems = append(problems, fmt.Sprintf("%s %d has a row, and is not documented", at.operation, at.status))
		}
	}
	if *update {
		return writeStatuses(rows)
	}
	if len(problems) == 0 {
		return nil
	}
	slices.Sort(problems)
	return fmt.Errorf("%s:\n\t%s\ngo test -C internal/apitest -update . writes it", statusesFile, strings.Join(problems, "\n\t"))
}

// missing is what a row says instead of a test.
const missing = "(no test)"

func readStatuses() (map[pair]string, error) {
	data, err := os.ReadFile(statusesFile)
	if os.IsNotExist(err) {
		return map[pair]string{}, nil
	}
	if err != nil {
		return nil, err
	}
	rows := map[pair]string{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		operation, rest, _ := strings.Cut(line, " ")
		status, test, _ := strings.Cut(strings.TrimSpace(rest), " ")
		n, err := strconv.Atoi(status)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", statusesFile, line, err)
		}
		rows[pair{operation, n}] = strings.TrimSpace(test)
	}
	return rows, nil
}

func writeStatuses(rows map[pair]string) error {
	var b strings.Builder
	b.WriteString("# Every documented answer, and a test that provokes it. go test -update . writes this file.\n")
	for _, at := range slices.SortedFunc(maps.Keys(rows), func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.operation, b.operation), cmp.Compare(a.status, b.status))
	}) {
		fmt.Fprintf(&b, "%-24s %d  %s\n", at.operation, at.status, rows[at])
	}
	return os.WriteFile(statusesFile, []byte(b.String()), 0o644)
}
