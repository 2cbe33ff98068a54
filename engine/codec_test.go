package engine_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

type callKey struct{}

// A witness codec notes in which calls it was used: the value of callKey in its context. In a
// run that is nothing, and the context does not end.
type witness struct {
	t *testing.T

	mu   sync.Mutex
	seen []string
}

func (w *witness) Name() string { return "witness" }

func (w *witness) note(ctx context.Context, what string) {
	call, _ := ctx.Value(callKey{}).(string)
	if call == "" && (ctx.Done() != nil || ctx.Err() != nil) {
		w.t.Errorf("%s in a run: the context can end", what)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, what+" "+call)
}

func (w *witness) Encode(ctx context.Context, v any) ([]byte, error) {
	w.note(ctx, "encode")
	return engine.JSON.Encode(ctx, v)
}

func (w *witness) Decode(ctx context.Context, data []byte, v any) error {
	w.note(ctx, "decode")
	return engine.JSON.Decode(ctx, data, v)
}

// A codec gets the context of the call that it serves.
func TestCodecGetsTheContextOfTheCall(t *testing.T) {
	virtual(t, func(t *testing.T) {
		w := &witness{t: t}
		word := &signal.Signal[string]{Name: "word"}
		act := &activity.Activity[string, string]{Name: "act", Run: func(_ context.Context, in string) (string, error) { return in, nil }}
		wf := flow("w", func(run *engine.Run) (string, error) {
			in, err := word.Receive(run)
			if err != nil {
				return "", err
			}
			return act.Do(run, in)
		})
		p := boot(t, fresh(t), wf, func(c *engine.Config) { c.Codec = w })
		called := func(name string) context.Context { return context.WithValue(ctx, callKey{}, name) }
		h, err := wf.Start(called("start"), p, "o", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := word.Send(called("send"), p, "o", "hello", nil); err != nil {
			t.Fatal(err)
		}
		if got, err := h.Result(called("result")); got != "hello" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, want := range []string{"encode start", "encode send", "decode result", "encode ", "decode "} {
			if !slices.Contains(w.seen, want) {
				t.Errorf("got %q, want %q among them", w.seen, want)
			}
		}
	})
}
