package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

// A partial is a client of another package that implements one method.
type partial struct{ engine.UnimplementedClient }

func (partial) Describe(context.Context, string) (engine.Info, error) {
	return engine.Info{ID: "described"}, nil
}

// A client of another package compiles without the methods that it does not have, and their
// callers are told.
func TestUnimplementedClient(t *testing.T) {
	var c engine.Client = partial{}
	if i, err := c.Describe(ctx, "o"); err != nil || i.ID != "described" {
		t.Errorf("Describe: got %+v, %v, want the method of the client", i, err)
	}
	_, started := c.StartWorkflow(ctx, &engine.StartRequest{})
	_, sent := c.SendSignal(ctx, signal.Message{})
	_, described := engine.UnimplementedClient{}.Describe(ctx, "o")
	for name, err := range map[string]error{
		"StartWorkflow": started,
		"SendSignal":    sent,
		"Describe":      described,
		"Result":        c.Result(ctx, "o", "", nil),
		"Cancel":        c.Cancel(ctx, "o", engine.Actor{}),
	} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: got %v, want errors.ErrUnsupported", name, err)
		}
	}
}
