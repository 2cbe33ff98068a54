package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/storage"
)

// exportVersion is the version of the files that Export writes.
const exportVersion = 1

// A preamble is the first line of an exported history.
type preamble struct {
	History    int               `json:"history"` // exportVersion
	ID         string            `json:"id"`
	Workflow   string            `json:"workflow"`
	Generation string            `json:"generation"`
	Status     checkpoint.Status `json:"status"`
	Retries    []again           `json:"retries,omitempty"`
	Started    time.Time         `json:"started,omitzero"`
	Input      json.RawMessage   `json:"input,omitempty"` // if it is JSON
	Data       []byte            `json:"data,omitempty"`  // of Input, if it is not
	Codec      string            `json:"codec,omitempty"`
}

// An again is a checkpoint.Retry.
type again struct {
	Checkpoint uint64    `json:"checkpoint"` // failures after this one,
	Event      int       `json:"event"`      // and after this event of it,
	End        uint64    `json:"end"`        // up to this one, are taken back
	At         time.Time `json:"at"`
}

func (a again) retry() checkpoint.Retry {
	return checkpoint.Retry{Quiet: checkpoint.Place{Checkpoint: a.Checkpoint, Event: a.Event}, End: a.End, At: checkpoint.Micro(a.At)}
}

// A chapter is each further line: a checkpoint.
type chapter struct {
	Number uint64    `json:"number"`
	Time   time.Time `json:"time"`
	Events []told    `json:"events"`
}

// A told event is one as an exported history has it.
type told struct {
	retold
	Result json.RawMessage `json:"result,omitempty"` // if it is JSON
}

// retold has the fields of a checkpoint.Event, in their order, so that one is
// converted into the other.
type retold struct {
	Kind      checkpoint.Kind `json:"kind"`
	Operation string          `json:"operation,omitempty"`
	Of        string          `json:"of,omitempty"`
	Name      string          `json:"name,omitempty"`
	Attempt   int             `json:"attempt,omitempty"`
	Result    []byte          `json:"data,omitempty"` // if it is no JSON
	Codec     string          `json:"codec,omitempty"`
	Error     string          `json:"error,omitempty"`
	Stack     string          `json:"stack,omitempty"`
	Sentinel  string          `json:"sentinel,omitempty"`
	Due       int64           `json:"due,omitempty"`
	SignalID  string          `json:"signalID,omitempty"`
	By        string          `json:"by,omitempty"`
	Why       string          `json:"why,omitempty"`
	Child     string          `json:"child,omitempty"`
	Key       string          `json:"key,omitempty"`
	Input     []byte          `json:"input,omitempty"`
	Category  string          `json:"category,omitempty"`
	Other     string          `json:"other,omitempty"`
	Branch    string          `json:"branch,omitempty"`
	Which     string          `json:"which,omitempty"`
}

// Export writes the history of a workflow to w, for enginetest.Replay and for
// people: lines of JSON, the first about the workflow and its input, then one
// for each checkpoint. What is encoded by JSON stands there as it is, and may be
// edited before the file is shown to anybody; of another codec there are the
// bytes. A workflow that has not ended is exported as far as it has come.
//
// Errors: ErrNotFound, also if the workflow is purged meanwhile, ErrInvalid,
// ErrClosed, the store's, w's. What has been written to w before an error is a part.
func (e *Engine) Export(ctx context.Context, id string, w io.Writer) error {
	wf, in, err := e.begun(ctx, id)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(w)
	lines := json.NewEncoder(buffered)
	lines.SetEscapeHTML(false)
	p := preamble{
		History:    exportVersion,
		ID:         id,
		Workflow:   wf.Type,
		Generation: wf.Generation,
		Status:     wf.Status,
		Started:    checkpoint.Time(wf.StartedAt),
		Codec:      in.Codec,
	}
	for _, r := range wf.Retries {
		p.Retries = append(p.Retries, again{r.Quiet.Checkpoint, r.Quiet.Event, r.End, checkpoint.Time(r.At)})
	}
	p.Input, p.Data = readable(in.Codec, in.Data)
	if err := lines.Encode(p); err != nil {
		return fmt.Errorf("engine: export %q: %w", id, err)
	}
	for c, err := range e.history(ctx, wf) {
		if err != nil {
			return err
		}
		if err := lines.Encode(tell(c)); err != nil {
			return fmt.Errorf("engine: export %q: %w", id, err)
		}
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("engine: export %q: %w", id, err)
	}
	return nil
}

// begun reads a workflow's record and the input that belongs to it.
func (e *Engine) begun(ctx context.Context, id string) (*checkpoint.Workflow, *checkpoint.Input, error) {
	for {
		wf, err := e.load(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		in, err := checkpoint.ReadInput(ctx, e.store, wf)
		if err == nil {
			return wf, in, nil
		}
		if err := outdated(ctx, e.store, wf, err); err != nil {
			return nil, nil, err
		}
	}
}

// takesEndBack says that a run which had ended has not, from this event on.
func takesEndBack(e checkpoint.Event) bool {
	return e.Kind == checkpoint.Acted && e.Name == retried
}

func tell(c checkpoint.Checkpoint) chapter {
	ch := chapter{Number: c.Number, Time: c.Time, Events: []told{}}
	for _, ev := range c.Events {
		t := told{retold: retold(ev)}
		t.Result, t.retold.Result = readable(ev.Codec, ev.Result)
		ch.Events = append(ch.Events, t)
	}
	return ch
}

// readable is data as JSON if it is that, and else as it is.
func readable(codec string, data []byte) (json.RawMessage, []byte) {
	if codec == "" && json.Valid(data) {
		return data, nil
	}
	return nil, data
}

func (ch chapter) checkpoint() checkpoint.Checkpoint {
	c := checkpoint.Checkpoint{Number: ch.Number, Time: ch.Time}
	for _, t := range ch.Events {
		ev := checkpoint.Event(t.retold)
		if t.Result != nil {
			ev.Result = t.Result
		}
		c.Events = append(c.Events, ev)
	}
	return c
}

// readExport reads what Export wrote. Errors: storage.ErrCorrupt,
// storage.ErrFutureFormat, r's.
func readExport(r io.Reader) (p preamble, history []checkpoint.Checkpoint, err error) {
	lines := json.NewDecoder(r)
	lines.DisallowUnknownFields()
	if err := lines.Decode(&p); err != nil {
		if p.History > exportVersion {
			return p, nil, fmt.Errorf("%w: exported history of version %d, this release knows %d", storage.ErrFutureFormat, p.History, exportVersion)
		}
		return p, nil, fmt.Errorf("%w: exported history: %w", storage.ErrCorrupt, err)
	}
	ended := false
	for {
		var ch chapter
		switch err := lines.Decode(&ch); {
		case errors.Is(err, io.EOF) && p.Status.Terminal() && !ended:
			return p, nil, fmt.Errorf("%w: exported history of %q is cut off", storage.ErrCorrupt, p.ID)
		case errors.Is(err, io.EOF):
			return p, history, nil
		case err != nil:
			return p, nil, fmt.Errorf("%w: exported history of %q: %w", storage.ErrCorrupt, p.ID, err)
		}
		c := ch.checkpoint()
		history = append(history, c)
		for _, ev := range c.Events {
			ended = ev.Kind == checkpoint.Ended || ended && !takesEndBack(ev)
		}
	}
}
