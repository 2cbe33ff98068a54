package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/exampletest"
)

// TestSchedule kills the program after its first report. The next process continues with the schedule,
// and sends the reports that follow.
func TestSchedule(t *testing.T) {
	program, db := exampletest.Build(t), filepath.Join(t.TempDir(), "schedule.db")
	start := func() *exampletest.Play { return exampletest.Start(t, program, "-db", db, "-night", "1s") }
	p := start()
	first := p.Until("report 1,")
	p.Kill()
	printed := start().End()
	for _, want := range []string{"Sun 29 Mar 03:00 CEST", "Mon 30 Mar 02:30 CEST"} {
		if !strings.Contains(first, want) {
			t.Errorf("it did not print %q:\n%s", want, first)
		}
	}
	for _, want := range []string{"report ", "asked for: shop: orders until "} {
		if !strings.Contains(printed, want) {
			t.Errorf("it did not print %q:\n%s", want, printed)
		}
	}
}
