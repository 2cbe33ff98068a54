package inspect

import (
	"context"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/waiting"
)

// Payloads is Engine.Payloads.
func (e *Reader) Payloads(ctx context.Context, id string) (weft.Payloads, error) {
	call := waiting.New(ctx, "payloads of workflow", id)
	waiting.For(call, "the store to read")
	p, err := e.payloads(call, id)
	return p, call.Explain(err)
}

func (e *Reader) payloads(ctx context.Context, id string) (weft.Payloads, error) {
	for {
		wf, err := e.Load(ctx, id)
		if err != nil {
			return weft.Payloads{}, err
		}
		p, err := e.payloadsOf(ctx, wf)
		if err == nil {
			return p, nil
		}
		if err := run.Outdated(ctx, e.Store, wf, err); err != nil {
			return weft.Payloads{}, err
		}
		// It was purged, resumed or started anew meanwhile.
	}
}

// payloadsOf reads what belongs to wf. All of it is of one generation, and the outcome is that of
// wf's status.
func (e *Reader) payloadsOf(ctx context.Context, wf *journal.Workflow) (weft.Payloads, error) {
	info, err := e.stateOf(ctx, wf)
	if err != nil {
		return weft.Payloads{}, err
	}
	in, err := journal.ReadInput(ctx, e.Store, wf)
	if err != nil {
		return weft.Payloads{}, err
	}
	p := weft.Payloads{Info: info, Input: encoded(in.Codec, in.Data)}
	if !wf.Status.Terminal() {
		return p, nil
	}
	out, err := journal.ReadOutput(ctx, e.Store, wf)
	if err != nil {
		return weft.Payloads{}, err
	}
	switch wf.Status {
	case checkpoint.StatusCompleted:
		result := encoded(out.Codec, out.Data)
		p.Result = &result
	case checkpoint.StatusFailed:
		p.Failure = e.failed(&run.Ending{Workflow: wf.Type, Cancel: wf.Cancel, Output: out}, wf.ID)
	}
	return p, nil
}

// encoded returns a payload with the name of its codec, which is not stored for JSON.
func encoded(codec string, data []byte) weft.Encoded {
	if codec == "" {
		codec = weft.JSON.Name()
	}
	return weft.Encoded{Codec: codec, Data: data}
}
