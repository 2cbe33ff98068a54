package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/weft-go/weft/checkpoint"
)

// A word is safe to print, and bash reads it as the string that it was made of.
func TestWordsAreForAShell(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash")
	}
	check := func(t interface{ Fatalf(string, ...any) }, s string) {
		w := word(s)
		if strings.ContainsFunc(w, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q is printed as %q", s, w)
		}
		cmd := exec.Command(bash, "-c", "printf %s "+w)
		cmd.Env = []string{"LC_ALL=C.UTF-8"}
		if out, err := cmd.Output(); err != nil || string(out) != s {
			t.Fatalf("%q is printed as %s, which bash reads as %q; %v", s, w, out, err)
		}
	}
	for _, s := range []string{"", "order-42", "a b", "a:b%3A", "it's", "\n\t\x1b[31m\x7f", "'\n\\n\"", "ä\u202e\u00a0", "$(x)`y`", "~", "*", "😀\U000e0001"} {
		check(t, s)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOfN(rapid.RuneFrom([]rune("a'\"\\ \n\x1b$`*\u202eä%")), 0, 8, -1).Draw(t, "s")
		check(t, s)
	})
}

// JSON is safe to print too, and stays the same JSON.
func TestJSONIsSafeToPrint(t *testing.T) {
	want := "\x00\x1b[31m\x7f\u009b\u202e\U000e0001é😀<&\\\""
	var out strings.Builder
	if err := printJSON(&out, want); err != nil {
		t.Fatal(err)
	}
	line := strings.TrimSuffix(out.String(), "\n")
	var got string
	if err := json.Unmarshal([]byte(line), &got); err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("it prints %q", line)
	}
}

// What a call has done stays visible when the run is held at it afterwards, because code and history
// disagree.
func TestHeldOperationKeepsItsOutcome(t *testing.T) {
	v := newView()
	for _, e := range []checkpoint.Event{
		{Kind: checkpoint.KindDispatched, Operation: "1", Of: "activity", Name: "charge", Attempt: 1, Key: "k"},
		{Kind: checkpoint.KindSettled, Operation: "1", Of: "activity", Name: "charge", Attempt: 1, Result: []byte(`"ch_1"`)},
		{Kind: checkpoint.KindHeld, Operation: "1", Name: "non-determinism", Error: "it is another now"},
		{Kind: checkpoint.KindDispatched, Operation: "2", Of: "activity", Name: "ship", Attempt: 1, Key: "k"},
		{Kind: checkpoint.KindSettled, Operation: "2", Of: "activity", Name: "ship", Attempt: 1, Error: "no answer", Category: "indeterminate"},
		{Kind: checkpoint.KindHeld, Operation: "2", Name: "indeterminate", Error: "nobody knows"}, // after Resume
	} {
		v.learn(checkpoint.Checkpoint{}, e, false)
	}
	if o := v.operations[0]; o.State != "completed" || o.result != `"ch_1"` || o.Error != "" {
		t.Errorf("the one that has completed is shown as %+v", o)
	}
	if o := v.operations[1]; o.State != held || o.Error != "nobody knows" {
		t.Errorf("the one that needs a person is shown as %+v", o)
	}
}
