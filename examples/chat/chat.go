package main

import (
	"context"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/stream"
)

// words is what the model says, as it comes.
var words = &stream.Stream[string]{Name: "words"}

// newChat returns the workflow of one question and its answer. Its result is the number of words.
func newChat(m *model) *engine.Workflow[string, int] {
	ask := &activity.Activity[string, int]{
		Name: "ask",
		Run: func(ctx context.Context, question string) (n int, err error) {
			w := words.Writer(ctx)
			for word, err := range m.Answer(ctx, question) {
				if err != nil {
					return n, err
				}
				if err := w.Write(word); err != nil {
					return n, err
				}
				n++
			}
			return n, nil
		},
	}
	return &engine.Workflow[string, int]{Name: "chat", Func: func(run *engine.Run, question string) (int, error) {
		return ask.Do(run, question)
	}}
}
