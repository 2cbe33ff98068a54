package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/exampletest"
)

// TestFanout kills the program in the middle. The next process asks for what is
// missing, and buys the same as without a kill.
func TestFanout(t *testing.T) {
	program, db := exampletest.Build(t), filepath.Join(t.TempDir(), "fanout.db")
	whole := exampletest.Start(t, program, "-pace", "10ms").End()
	total := parts * len(suppliers)
	if !strings.Contains(whole, fmt.Sprintf("this process asked %d times, ", total)) {
		t.Errorf("undisturbed it did not ask %d times:\n%s", total, whole)
	}

	p := exampletest.Start(t, program, "-db", db)
	first := p.UntilNumber() + p.Until("for part 7")
	first += p.Kill()
	second := exampletest.Start(t, program, "-db", db).End()
	again := 0
	for part := 1; part <= parts; part++ {
		for _, s := range suppliers {
			n := strings.Count(first+second, fmt.Sprintf("asking %s for part %d\n", s, part))
			if n < 1 || n > 2 {
				t.Errorf("%s was asked %d times for part %d", s, n, part)
			}
			again += n - 1
		}
	}
	if most := atATime * len(suppliers); again > most {
		t.Errorf("%d questions were asked again; %d were under way", again, most)
	}
	bought := func(printed string) string {
		_, offers, _ := strings.Cut(printed, "part 1: ")
		offers, _, _ = strings.Cut(offers, ";")
		return offers
	}
	if got, want := bought(second), bought(whole); got != want || got == "" {
		t.Errorf("it bought\n%s, undisturbed\n%s", got, want)
	}
	if third := exampletest.Start(t, program, "-db", db).End(); !strings.Contains(third, "this process asked 0 times") {
		t.Errorf("after the end it asked again:\n%s", third)
	}
	var most int
	_, rest, _ := strings.Cut(whole, " times, ")
	if _, err := fmt.Sscanf(rest, "%d at a time", &most); err != nil || most < 1 || most > atATime*len(suppliers) {
		t.Errorf("%d questions at a time, %v; want at most %d", most, err, atATime*len(suppliers))
	}
}
