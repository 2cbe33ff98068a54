package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
)

// A Night is what a report is about.
type Night struct {
	Shop  string
	Until time.Time
}

// nightly is the workflow: it counts the orders up to the time for which it was started, and sends
// the report.
var nightly = &engine.Workflow[string, string]{Name: "nightly", Func: func(run *engine.Run, shop string) (string, error) {
	until, ok := run.Nominal()
	if !ok {
		until = run.Now() // somebody has asked for a report
	}
	return send.Do(run, Night{shop, until})
}}

// send sends a report. Its key has the time in it, so that a report is sent once.
var send = &activity.Activity[Night, string]{
	Name:           "send",
	IdempotencyKey: func(n Night) string { return n.Shop + " " + n.Until.UTC().Format(time.RFC3339Nano) },
	Run: func(_ context.Context, n Night) (string, error) {
		return fmt.Sprintf("%s: orders until %s", n.Shop, n.Until.UTC().Format("15:04:05")), nil
	},
}
