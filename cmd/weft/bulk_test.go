package main_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// The verbs about bulk operations put one into the store, show it and stop it, without an engine that runs.
func TestBulk(t *testing.T) {
	onKinds(t, func(t *testing.T, s shell, k kind) {
		k.filled(t)
		say := []string{"--by", "ann", "--reason", "told so", "--write"}
		ask := func(args ...string) string { return s.done(append(append([]string{"bulk"}, args...), say...)...) }
		if out := ask("start", "stop all", "cancel", "--workflow", "hello", "--rate", "10/1s"); out != "'stop all': is started\n" {
			t.Errorf("start: %q", out)
		}
		ask("start", "stop all", "cancel", "--workflow", "hello", "--rate", "10/1s") // the same again
		late := []string{"bulk", "start", "late", "cancel", "--since", "2h", "--by", "ann", "--reason", "told so", "--write"}
		s.done(late...)
		_, notes, code := s.run(late...)
		_, since, found := strings.Cut(strings.Split(notes, "\n")[0], "repeat this with --since ")
		if code != 1 || !found || !strings.Contains(notes, "has this id") {
			t.Errorf("of two hours ago again: %d, %s", code, notes)
		}
		late[5] = since
		s.done(late...)
		ask("stop", "late")
		ask("start", "back", "reset", "--status", "failed", "--before", "start")
		ask("start", "tell", "signal", "--id-prefix", "o", "--signal", "go", "--payload", `"now"`)
		out := s.done("bulk", "list")
		if strings.Count(out, "\n") != 5 || !strings.Contains(out, "'stop all'") || !strings.Contains(out, "waiting") {
			t.Errorf("list: %s", out)
		}
		var j struct {
			ID, Verb, Rate, By, Before, Signal string
			Filter                             struct{ Workflow, Status, IDPrefix string }
		}
		read := func(id string) {
			t.Helper()
			out := s.done("bulk", "list", id, "--json")
			j.Before, j.Signal = "", ""
			if err := json.Unmarshal([]byte(out), &j); err != nil || j.ID != id || j.By != "ann" {
				t.Errorf("list of %s: %s, %v", id, out, err)
			}
		}
		if read("stop all"); j.Verb != "cancel" || j.Rate != "10/1s" || j.Filter.Workflow != "hello" {
			t.Errorf("got %+v", j)
		}
		if read("back"); j.Verb != "reset" || j.Before != "" || j.Filter.Status != "failed" {
			t.Errorf("got %+v", j)
		}
		if read("tell"); j.Verb != "signal" || j.Signal != "go" || j.Filter.IDPrefix != "o" {
			t.Errorf("got %+v", j)
		}
		if out := ask("stop", "stop all"); out != "'stop all': is stopped\n" {
			t.Errorf("stop: %q", out)
		}
		if out := s.done("bulk", "list", "stop all"); !strings.HasPrefix(out, "'stop all' cancel: stopped, 0 done, 0 refused\n") || !strings.Contains(out, "by ann: told so") {
			t.Errorf("list of one: %s", out)
		}
		s.fails(1, "see the ids with weft bulk list", "bulk", "list", "none")
		s.fails(1, "not found: see the ids with weft bulk list", append([]string{"bulk", "stop", "none"}, say...)...)
		s.fails(2, "add --write", "bulk", "stop", "back", "--reason", "x")
		s.fails(2, "selects everything", append([]string{"bulk", "start", "x", "cancel"}, say...)...)
		s.fails(2, "reset needs --before", append([]string{"bulk", "start", "x", "reset", "--status", "failed"}, say...)...)
		s.fails(2, "signal needs --signal", append([]string{"bulk", "start", "x", "signal", "--status", "failed"}, say...)...)
		s.fails(2, "is not like 10/1s", append([]string{"bulk", "start", "x", "cancel", "--status", "failed", "--rate", "10"}, say...)...)
		s.fails(1, "has this id", append([]string{"bulk", "start", "back", "cancel", "--status", "failed"}, say...)...)
	})
}
