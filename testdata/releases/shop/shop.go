// Package shop is what engines of two releases execute, and how they open a store. It must build with the
// release before, so it uses nothing that is new.
package shop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// A Task is the input of a delivery.
type Task struct {
	Kind Kind
	At   time.Time // a delivery that begins earlier fails
}

// A Kind says what a delivery does and waits for.
type Kind string

// The kinds of deliveries. The release before executes the first three of them.
const (
	Plain     Kind = "plain"     // waits for Approved
	Scheduled Kind = "scheduled" // waits for nothing
	Waits     Kind = "waits"     // waits for Released
	Newer     Kind = "newer"     // needs what only this release has
)

// Sent is the result of a delivery.
const Sent = "packed and sent"

var (
	Approved = &signal.Signal[bool]{Name: "approved"}
	Released = &signal.Signal[bool]{Name: "released"}
)

// Name is the name of the workflow.
const Name = "delivery"

// Delivery is the workflow, which packs and sends, and its child. A release does more before that.
func Delivery(more func(run *engine.Run, t Task) error) []engine.Definition {
	leave := &engine.Workflow[string, string]{Name: "leave", Func: func(run *engine.Run, packed string) (string, error) {
		return packed + " and sent", run.Sleep(10 * time.Millisecond)
	}}
	delivery := &engine.Workflow[Task, string]{Name: Name, Func: func(run *engine.Run, t Task) (string, error) {
		fmt.Println("executes", t.Kind)
		if now := run.Now(); now.Before(t.At) {
			return "", fmt.Errorf("it begins at %v, and was to begin at %v", now, t.At)
		}
		if err := more(run, t); err != nil {
			return "", err
		}
		packed, err := engine.Step(run, "pack", func(context.Context) (string, error) {
			time.Sleep(rand.N(4 * time.Millisecond)) // so that kills interrupt it
			return "packed", nil
		})
		if err != nil {
			return "", err
		}
		switch t.Kind {
		case Scheduled:
		case Waits:
			_, err = Released.Receive(run)
		default:
			_, err = Approved.Receive(run)
		}
		if err != nil {
			return "", err
		}
		return leave.Do(run, packed)
	}}
	return []engine.Definition{delivery, leave}
}

// Open opens a store: sqlite:FILE, bolt:FILE or postgres://URL.
func Open(ctx context.Context, at string) (storage.Storage, error) {
	switch kind, file, _ := strings.Cut(at, ":"); kind {
	case "sqlite":
		return sqlite.Open(file, nil)
	case "bolt":
		return bolt.Open(file, nil)
	case "postgres":
		return postgres.Open(ctx, at, nil)
	}
	return nil, errors.New("no store " + at)
}

// Quick has an engine soon take over what a process has left that was killed.
func Quick(c engine.Config) engine.Config {
	c.PollInterval = 20 * time.Millisecond
	if c.Storage.Capabilities().Shared { // nobody tells that the other process was killed
		c.LeaseTTL, c.PollInterval = 150*time.Millisecond, 50*time.Millisecond
	}
	return c
}
