package journal

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// An Input is the input of a workflow: wf:{id}:in.
type Input struct {
	Generation string `cbor:"1,keyasint"`
	Codec      string `cbor:"2,keyasint,omitempty"` // "" is JSON
	Data       []byte `cbor:"3,keyasint,omitempty"`

	// Headers are what the host's Propagator carries to the run's attempts. Execution does not
	// depend on them.
	Headers map[string]string `cbor:"4,keyasint,omitempty"`

	// Life is the life of the run that began with it. See Workflow.Life.
	Life int `cbor:"5,keyasint,omitempty"`
}

// An Output is the result or failure of a workflow: wf:{id}:out.
type Output struct {
	Generation string            `cbor:"1,keyasint"`
	Status     checkpoint.Status `cbor:"2,keyasint"`
	Codec      string            `cbor:"3,keyasint,omitempty"`
	Data       []byte            `cbor:"4,keyasint,omitempty"`
	Error      string            `cbor:"5,keyasint,omitempty"`
	Stack      string            `cbor:"6,keyasint,omitempty"`
	Sentinel   string            `cbor:"7,keyasint,omitempty"`

	unknown record.Unknown
}

// PutInput returns the operation that stores in.
func PutInput(id string, in *Input) (storage.Op, error) {
	return put(keys.Input(id), in)
}

// PutOutput returns the operation that stores out.
func PutOutput(id string, out *Output) (storage.Op, error) {
	return put(keys.Output(id), out)
}

func put(key []byte, v any) (storage.Op, error) {
	raw, err := record.Seal(key, Version, v, nil)
	return storage.Put(key, raw), err
}

// ReadInput reads the input of wf.
func ReadInput(ctx context.Context, s storage.Storage, wf *Workflow) (*Input, error) {
	var in Input
	_, err := belonging(ctx, s, keys.Input(wf.ID), wf, &in, &in.Generation)
	return &in, in.of(wf, err)
}

// of returns err, or an error if in is not the input of the present life of wf.
func (in *Input) of(wf *Workflow, err error) error {
	if err == nil && in.Life != wf.Life {
		return fmt.Errorf("%w: record %q is of life %d of the workflow, which is in life %d", storage.ErrCorrupt, keys.Input(wf.ID), in.Life, wf.Life)
	}
	return err
}

// ReadOutput reads the output of wf, which has ended.
func ReadOutput(ctx context.Context, s storage.Storage, wf *Workflow) (*Output, error) {
	var out Output
	unknown, err := belonging(ctx, s, keys.Output(wf.ID), wf, &out, &out.Generation)
	out.unknown = unknown
	return &out, err
}

// belonging reads a record that must exist because wf does.
func belonging(ctx context.Context, s storage.Storage, key []byte, wf *Workflow, v any, generation *string) (record.Unknown, error) {
	raw, err := s.Get(ctx, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, fmt.Errorf("%w: record %q is missing", storage.ErrCorrupt, key)
	}
	if err != nil {
		return nil, err
	}
	return owned(key, raw, wf, v, generation)
}

// owned decodes a record that belongs to wf.
func owned(key, raw []byte, wf *Workflow, v any, generation *string) (record.Unknown, error) {
	unknown, err := record.Open(key, raw, Version, v)
	if err != nil {
		return nil, err
	}
	if *generation != wf.Generation {
		return nil, fmt.Errorf("%w: record %q is of another generation", storage.ErrCorrupt, key)
	}
	return unknown, nil
}
