package weft

import (
	"context"
	"encoding/json"

	"github.com/weft-go/weft/internal/jsontext"
)

// A Codec encodes and decodes inputs, results and signals. Its name is stored with
// what it encoded, so the name must never change. Keep codecs that were used earlier
// in engine.Config.Codecs.
//
// A codec may encrypt: inputs are compared by digests of their JSON, not of what
// Encode returns.
//
// If the input of an activity contains a pointer, a map or an interface, each attempt
// gets a copy that was encoded and decoded. What the codec does not preserve of such an
// input is missing in the copy.
//
// A codec may have a method CheckType(reflect.Type) error. engine.New calls it with the types of inputs and
// results, and refuses a workflow of which a part would not be stored.
//
// ctx is that of the call for StartWorkflow, SendSignal and Result, also those of a Workflow
// and a Handle. In a run it does not end: a codec that calls a key service needs a timeout of
// its own. As long as it blocks, the run does nothing else, and Engine.Close may wait for it.
type Codec interface {
	Name() string
	Encode(ctx context.Context, v any) ([]byte, error)
	Decode(ctx context.Context, data []byte, v any) error
}

// JSON is the default codec.
var JSON Codec = jsonCodec{}

type jsonCodec struct{}

func (jsonCodec) Name() string { return "json" }

func (jsonCodec) Encode(_ context.Context, v any) ([]byte, error) { return json.Marshal(v) }

func (jsonCodec) Decode(_ context.Context, data []byte, v any) error {
	if s, ok := v.(*string); ok && jsontext.PlainString(data) { // the most frequent result, decoded without a parser
		*s = string(data[1 : len(data)-1])
		return nil
	}
	return json.Unmarshal(data, v)
}
