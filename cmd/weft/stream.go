package main

import (
	"fmt"
	"iter"

	remote "github.com/weft-go/weft/client"
	"github.com/weft-go/weft/stream"
)

type readStream struct {
	ID string `arg:"" help:"The id of the workflow."`
	streaming
}

// streaming is what a verb needs to know that reads a stream.
type streaming struct {
	Name string `arg:"" help:"The name of the stream."`
	From int64  `default:"0" placeholder:"N" help:"Begin with the chunk of this index. --from=-1 begins with the last one that there is."`
}

func (s *readStream) Run(e *env) error {
	return e.reading(func(c *client) error { return e.printStream(c.ReadStream(e, s.ID, s.Name, s.From)) })
}

type runsStream struct {
	oneRun
	streaming
}

func (x *runsStream) Run(e *env) error {
	return e.remotely(x.plane, func(c *remote.Client) error { return e.printStream(c.ReadStream(e, x.ID, x.Name, x.From)) })
}

// printStream prints chunks as they come.
func (e *env) printStream(all iter.Seq2[stream.Stored, error]) error {
	for c, err := range all {
		if err != nil {
			return err
		}
		if e.JSON {
			err = printJSON(e.out, chunkOf(c))
		} else {
			_, err = fmt.Fprintln(e.out, chunkLine(c))
		}
		if err == nil {
			err = e.out.Flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// chunkLine returns a chunk for a reader: time, index, operation and value.
func chunkLine(c stream.Stored) string {
	attempt := ""
	if c.Attempt > 1 {
		attempt = fmt.Sprintf("attempt %d: ", c.Attempt)
	}
	return fmt.Sprintf("%s  %d  %s  %s%s", exactly(c.Time), c.Index, or(text(c.Operation)), attempt, payload(c.Data, c.Codec, stream.MaxChunk))
}

func chunkOf(c stream.Stored) chunkJSON {
	p := payloadOf(c.Data, c.Codec)
	return chunkJSON{Index: c.Index, ID: c.ID, Time: c.Time.UTC(), Operation: c.Operation, Attempt: c.Attempt, Value: p.Result, Data: p.Data, Codec: p.Codec}
}
