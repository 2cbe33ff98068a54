package main

import (
	"context"
	"iter"
	"strings"
	"time"
)

// A model answers every question in the same way, slowly.
type model struct{ pause time.Duration }

// Answer yields the words of the answer until there are no more, or ctx is done.
func (m *model) Answer(ctx context.Context, question string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, word := range answerTo(question) {
			select {
			case <-time.After(m.pause):
			case <-ctx.Done():
				yield("", context.Cause(ctx))
				return
			}
			if !yield(word, nil) {
				return
			}
		}
	}
}

const wisdom = `That depends on what you expect. A process may end at any moment, and so may a connection. What was said before must
not be lost then, and nothing should be said twice. So each of these words is stored before you see it, with a number. Your
browser tells the number of the last one that it has got, and gets the next one. If the process that asks me dies, another one
asks me again, and the page begins again with my first word. Reload this page while I speak, or kill the program and start
it again: you will see.`

func answerTo(question string) []string {
	return strings.Fields("You ask: " + question + " " + wisdom)
}
