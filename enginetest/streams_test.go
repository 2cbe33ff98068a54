package enginetest

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/sqlite"
	"github.com/weft-go/weft/stream"
)

var (
	words   = &stream.Stream[string]{Name: "words"}
	speech  = strings.Fields("it depends on what")
	clicked = &signal.Hook[string]{Name: "clicked"}
)

// chatting waits for a question by a hook, has say answer it to a stream, and closes that.
func chatting(say func(ctx context.Context, w *stream.Writer[string]) error) func(*Recorder) Scenario {
	answer := &activity.Activity[string, string]{Name: "answer", Run: func(ctx context.Context, question string) (string, error) {
		return "to " + question, say(ctx, words.Writer(ctx))
	}}
	chat := simple(func(run *engine.Run) (string, error) {
		h, err := clicked.Open(run, &signal.HookOptions{Token: "chat/7"})
		if err != nil {
			return "", err
		}
		question, err := h.Receive(run)
		if err != nil {
			return "", err
		}
		said, err := answer.Do(run, question)
		if err != nil {
			return "", err
		}
		return said, words.Close(run)
	})
	return func(*Recorder) Scenario {
		return Scenario{
			Workflows: []engine.Definition{chat},
			Drive: func(ctx context.Context, eng *engine.Engine) error {
				if _, err := chat.Start(ctx, eng, "chat-7", ""); err != nil {
					return err
				}
				for {
					_, err := clicked.Resume(ctx, eng, "chat/7", "why", &signal.Options{ID: "click"})
					if !errors.Is(err, engine.ErrNotFound) {
						return err
					}
					select { // it is not open yet
					case <-time.After(time.Second):
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			},
		}
	}
}

func sayAll(_ context.Context, w *stream.Writer[string]) error {
	for _, word := range speech {
		if err := w.Write(word); err != nil {
			return err
		}
	}
	return nil
}

// A hook is resumed once and a stream has every word in its order, wherever the process crashes, on each kind of store.
func TestHooksAndStreamsInACrash(t *testing.T) {
	found(t, everywhere(t, chatting(sayAll)))
	for name, open := range map[string]func(t testing.TB) (storage.Storage, error){
		"sqlite": func(t testing.TB) (storage.Storage, error) {
			return sqlite.Open(filepath.Join(t.TempDir(), "store"), nil)
		},
		"bolt": func(t testing.TB) (storage.Storage, error) {
			return bolt.Open(filepath.Join(t.TempDir(), "store"), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			scenario := chatting(sayAll)
			found(t, often(t, 10, func(world *Recorder) Scenario {
				s := scenario(world)
				s.Open = func(t testing.TB) storage.Storage {
					opened, err := open(t)
					if err != nil {
						t.Fatal(err)
					}
					return opened
				}
				return s
			}))
		})
	}
}

// A word that is lost is reported: here an attempt believes that the one before has stored its words.
func TestLostWordsAreFound(t *testing.T) {
	r := everywhere(t, chatting(func(ctx context.Context, w *stream.Writer[string]) error {
		if activity.InfoFrom(ctx).Attempt > 1 {
			return nil
		}
		return sayAll(ctx, w)
	}))
	found(t, r, `has not written to stream "words" what it writes undisturbed:`, `undisturbed  "it" "depends" "on" "what"`)
}
