package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/exampletest"
)

// TestApproval kills the program while two bosses do not answer. The next process waits
// for the rest of the time, and makes the same decisions.
func TestApproval(t *testing.T) {
	program, db := exampletest.Build(t), filepath.Join(t.TempDir(), "approval.db")
	start := func() *exampletest.Play { return exampletest.Start(t, program, "-db", db, "-wait", "3s") }
	p := start()
	first := p.UntilNumber() + p.Until("telling everybody")
	first += p.Kill()
	printed := start().End()
	for _, want := range []string{
		"train: approved by ann\n",
		"yacht: rejected by ann: too dear\n",
		"chair: rejected by ben's boss: too dear\n",
		"plant: nobody answered\n",
		"lunch: withdrawn: I ate at home\n",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("it did not print %q", want)
		}
	}
	for _, who := range []string{"ben's boss about chair", "cem's boss about plant"} {
		if !strings.Contains(first+printed, who) {
			t.Errorf("it did not ask %s", who)
		}
	}
	if again := start().End(); strings.Contains(again, "asking") {
		t.Errorf("after the end it asked again:\n%s", again)
	}
}
