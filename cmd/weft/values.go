package main

import (
	"iter"

	"github.com/weft-go/weft"
)

type values struct {
	ID string `arg:"" help:"The id of the workflow."`
}

func (v *values) Run(e *env) error {
	return e.reading(func(c *client) error { return e.listValues(c.Values(e, v.ID)) })
}

// listValues prints values.
func (e *env) listValues(all iter.Seq2[weft.ValueInfo, error]) error {
	var t table
	if !e.JSON {
		t = newTable(e.out, "VALUE", "SET", "IS")
	}
	for v, err := range all {
		switch {
		case err != nil:
			return err
		case e.JSON:
			if err := printJSON(e.out, valueOf(v)); err != nil {
				return err
			}
		default:
			t.row(word(v.Name), at(v.SetAt), payload(v.Value.Data, v.Value.Codec, most))
		}
	}
	if !e.JSON {
		t.end()
	}
	return nil
}

func valueOf(v weft.ValueInfo) valueJSON {
	p := payloadOf(v.Value.Data, v.Value.Codec)
	return valueJSON{Name: v.Name, Set: v.SetAt.UTC(), Value: p.Result, Data: p.Data, Codec: p.Codec}
}
