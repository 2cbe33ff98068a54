package main_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
)

// The verbs about schedules show what is in the store, and act on it without an engine that runs.
func TestSchedules(t *testing.T) {
	onKinds(t, func(t *testing.T, s shell, k kind) {
		k.filled(t)
		k.with(t, func(store storage.Storage) {
			eng, err := engine.New(engine.Config{Storage: store, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer eng.Close()
			for _, id := range []string{"nightly report", "other"} {
				if err := eng.PutSchedule(context.Background(), engine.Schedule{
					ID: id, Start: &engine.StartRequest{Workflow: "hello", Input: "ann"}, Cron: []string{"30 2 * * *"}, Zone: "Europe/Berlin", Overlap: engine.OverlapWait,
				}, engine.Actor{Name: "ann", Reason: "deployed"}); err != nil {
					t.Fatal(err)
				}
			}
		})
		say := []string{"--by", "ann", "--reason", "told so", "--write"}
		ask := func(args ...string) string { return s.done(append(append([]string{"schedules"}, args...), say...)...) }

		out := s.done("schedules", "list")
		if !strings.Contains(out, "'nightly report'") || !strings.Contains(out, "30 2 * * * Europe/Berlin") || strings.Count(out, "\n") != 3 {
			t.Errorf("list: %s", out)
		}
		if out := s.done("schedules", "list", "oth"); strings.Count(out, "\n") != 2 {
			t.Errorf("list of a prefix: %s", out)
		}
		out = s.done("schedules", "show", "nightly report")
		if strings.Count(out, "\n  next ") != 5 || !strings.Contains(out, "overlap    wait") || !strings.Contains(out, "0 started, 0 skipped, 0 missed") {
			t.Errorf("show: %s", out)
		}
		if out := ask("pause", "nightly report"); out != "'nightly report': is paused\n" {
			t.Errorf("pause: %q", out)
		}
		var j struct {
			ID     string
			Paused struct{ By, Reason string }
			Next   []string
		}
		out = s.done("schedules", "show", "nightly report", "--json")
		if err := json.Unmarshal([]byte(out), &j); err != nil || j.ID != "nightly report" || j.Paused.By != "ann" || j.Paused.Reason != "told so" || j.Next != nil {
			t.Errorf("show, paused: %s, %v", out, err)
		}
		id := strings.Trim(strings.TrimSpace(ask("trigger", "nightly report")), "'")
		if out := s.done("describe", id); !strings.Contains(out, "'weft.schedule=nightly report'") {
			t.Errorf("describe of what was triggered: %s", out)
		}
		second := append([]string{"schedules", "trigger", "nightly report"}, say...)
		s.noted("it is started after the end of workflow", second...)
		ask("resume", "nightly report")
		ask("delete", "nightly report")
		s.fails(1, "see the ids with weft schedules list", "schedules", "show", "nightly report")
		s.fails(1, "not found: see the ids with weft schedules list", append([]string{"schedules", "pause", "nightly report"}, say...)...)
		s.fails(2, "add --write", "schedules", "delete", "other", "--reason", "x")
	})
}
