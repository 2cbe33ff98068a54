package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// say prints a line with the time.
func say(at time.Time, line string) {
	fmt.Printf("  %s  %s\n", at.Local().Format(time.TimeOnly), line)
}

// lines is the log as this program shows it: the log of runs as plain lines, and only
// warnings of the rest.
type lines struct {
	slog.Handler
	ofRun bool // the logger is one of engine.Run.Logger
}

func (h *lines) Enabled(_ context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn || h.ofRun && l >= slog.LevelInfo
}

func (h *lines) Handle(ctx context.Context, r slog.Record) error {
	if h.ofRun {
		say(r.Time, r.Message)
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h *lines) WithAttrs(a []slog.Attr) slog.Handler {
	return &lines{h.Handler.WithAttrs(a), h.ofRun || len(a) == 1 && a[0].Key == "workflow"}
}

func (h *lines) WithGroup(g string) slog.Handler { return &lines{h.Handler.WithGroup(g), h.ofRun} }
