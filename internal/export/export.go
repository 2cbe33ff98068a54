// Package export implements the format of an exported history: lines of JSON, the first about
// the workflow and its input, then one for each checkpoint. Payloads that are valid JSON are
// embedded as JSON, others as base64.
package export

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/storage"
)

// Versions of the format. Write writes the oldest one that has all that there is to write, so that
// earlier releases can read most histories.
const (
	first   = 1
	choices = 2 // of versions of changes
	lives   = 3 // of runs that have continued as new
	asks    = 4 // of runs that were reset, or have continued as new and had updates before
	latest  = asks
)

// A Preamble is the first line of an exported history.
type Preamble struct {
	History    int               `json:"history"` // version of the format
	ID         string            `json:"id"`
	Workflow   string            `json:"workflow"`
	Generation string            `json:"generation"`
	Status     checkpoint.Status `json:"status"`
	Needs      []string          `json:"needs,omitempty"` // see journal.Workflow
	Retries    []Retry           `json:"retries,omitempty"`
	Versions   []Choice          `json:"versions,omitempty"`
	Resets     []Reset           `json:"resets,omitempty"` // since version 4
	Started    time.Time         `json:"started,omitzero"`
	Life       int               `json:"life,omitempty"`    // see journal.Workflow, as is First
	First      uint64            `json:"first,omitempty"`   // since version 3
	Updates    int               `json:"updates,omitempty"` // likewise, since version 4
	Input      json.RawMessage   `json:"input,omitempty"`   // if it is valid JSON
	Data       []byte            `json:"data,omitempty"`    // the input otherwise
	Codec      string            `json:"codec,omitempty"`
}

// A Retry is a journal.Retry in an exported history.
type Retry struct {
	Checkpoint uint64    `json:"checkpoint"` // failures after this checkpoint
	Event      int       `json:"event"`      // and after this event in it
	End        uint64    `json:"end"`        // up to this checkpoint are revoked
	At         time.Time `json:"at"`
}

// RetryOf converts r to its exported form.
func RetryOf(r journal.Retry) Retry {
	return Retry{r.Quiet.Checkpoint, r.Quiet.Event, r.End, journal.Time(r.At)}
}

// Recorded converts r to the form of a workflow record.
func (r Retry) Recorded() journal.Retry {
	return journal.Retry{Quiet: journal.Place{Checkpoint: r.Checkpoint, Event: r.Event}, End: r.End, At: journal.Micro(r.At)}
}

// A Choice is a journal.Choice in an exported history.
type Choice struct {
	Change     string `json:"change"`
	Version    int    `json:"version"`
	Checkpoint uint64 `json:"checkpoint,omitempty"` // from this checkpoint
	Event      int    `json:"event,omitempty"`      // and this event in it on
}

// ChoiceOf converts c to its exported form.
func ChoiceOf(c journal.Choice) Choice {
	return Choice{c.Change, c.Version, c.From.Checkpoint, c.From.Event}
}

// Recorded converts c to the form of a workflow record.
func (c Choice) Recorded() journal.Choice {
	return journal.Choice{Change: c.Change, Version: c.Version, From: journal.Place{Checkpoint: c.Checkpoint, Event: c.Event}}
}

// A Reset is a journal.Reset in an exported history.
type Reset struct {
	Before     string    `json:"before,omitempty"`
	Checkpoint uint64    `json:"checkpoint,omitempty"` // events after this checkpoint
	Event      int       `json:"event,omitempty"`      // and after this event in it
	To         uint64    `json:"to"`                   // up to this checkpoint are passed over
	At         time.Time `json:"at"`
}

// ResetOf converts r to its exported form.
func ResetOf(r journal.Reset) Reset {
	return Reset{r.Before, r.Point.Checkpoint, r.Point.Event, r.To, journal.Time(r.At)}
}

// Recorded converts r to the form of a workflow record.
func (r Reset) Recorded() journal.Reset {
	return journal.Reset{Before: r.Before, Point: journal.Place{Checkpoint: r.Checkpoint, Event: r.Event}, To: r.To, At: journal.Micro(r.At)}
}

// A checkpointLine is any line after the first: a checkpoint.
type checkpointLine struct {
	Number uint64    `json:"number"`
	Time   time.Time `json:"time"`
	Events []event   `json:"events"`
}

// An event is an event in an exported history.
type event struct {
	eventFields
	Result json.RawMessage `json:"result,omitempty"` // if it is valid JSON
}

// eventFields has the fields of a checkpoint.Event in the same order, so that one can be
// converted to the other.
type eventFields struct {
	Kind      checkpoint.Kind `json:"kind"`
	Operation string          `json:"operation,omitempty"`
	Of        string          `json:"of,omitempty"`
	Name      string          `json:"name,omitempty"`
	Attempt   int             `json:"attempt,omitempty"`
	Result    []byte          `json:"data,omitempty"` // the result otherwise
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
	Version   int             `json:"version,omitempty"`
	Seq       uint64          `json:"-"` // a replay does not need it
	Was       []byte          `json:"-"` // likewise
}

// Write writes an exported history: p and then the checkpoints, as a line of JSON each. It
// returns an error of checkpoints unchanged.
func Write(w io.Writer, p Preamble, checkpoints iter.Seq2[checkpoint.Checkpoint, error]) error {
	p.History = first
	if len(p.Versions) > 0 {
		p.History = choices
	}
	if p.Life > 0 {
		p.History = lives
	}
	if p.Updates > 0 || len(p.Resets) > 0 {
		p.History = asks
	}
	buffered := bufio.NewWriter(w)
	lines := json.NewEncoder(buffered)
	lines.SetEscapeHTML(false)
	if err := lines.Encode(p); err != nil {
		return fmt.Errorf("engine: export %q: %w", p.ID, err)
	}
	for c, err := range checkpoints {
		if err != nil {
			return err
		}
		if err := lines.Encode(tell(c)); err != nil {
			return fmt.Errorf("engine: export %q: %w", p.ID, err)
		}
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("engine: export %q: %w", p.ID, err)
	}
	return nil
}

// Retried is the name of the verb that makes an ended run continue.
const Retried = "retry"

// ResetTo returns the name of the verb that resets a run to before an operation; "" is its start.
func ResetTo(before string) string {
	if before == "" {
		return resetTo + "the start"
	}
	return resetTo + "before " + before
}

const resetTo = "reset to "

// TakesEndBack reports whether e makes a run that had ended continue.
func TakesEndBack(e checkpoint.Event) bool {
	return e.Kind == checkpoint.KindActed && (e.Name == Retried || strings.HasPrefix(e.Name, resetTo))
}

func tell(c checkpoint.Checkpoint) checkpointLine {
	ch := checkpointLine{Number: c.Number, Time: c.Time, Events: []event{}}
	for _, ev := range c.Events {
		t := event{eventFields: eventFields(ev)}
		t.Result, t.eventFields.Result = Readable(ev.Codec, ev.Result)
		ch.Events = append(ch.Events, t)
	}
	return ch
}

// Readable returns data as JSON if it is valid JSON without a codec, and as bytes otherwise.
func Readable(codec string, data []byte) (json.RawMessage, []byte) {
	if codec == "" && json.Valid(data) {
		return data, nil
	}
	return nil, data
}

func (ch checkpointLine) checkpoint() checkpoint.Checkpoint {
	c := checkpoint.Checkpoint{Number: ch.Number, Time: ch.Time}
	for _, t := range ch.Events {
		ev := checkpoint.Event(t.eventFields)
		if t.Result != nil {
			ev.Result = t.Result
		}
		c.Events = append(c.Events, ev)
	}
	return c
}

// Read reads what Write wrote. It returns storage.ErrCorrupt, storage.ErrFutureFormat or an
// error of r.
func Read(r io.Reader) (p Preamble, history []checkpoint.Checkpoint, err error) {
	lines := json.NewDecoder(r)
	lines.DisallowUnknownFields()
	err = lines.Decode(&p)
	if p.History > latest { // whether or not this release can decode it
		return p, nil, fmt.Errorf("%w: exported history of version %d, this release knows %d", storage.ErrFutureFormat, p.History, latest)
	}
	if err == nil && p.History < first {
		err = fmt.Errorf("it has the version %d", p.History)
	}
	if err != nil {
		return p, nil, fmt.Errorf("%w: exported history: %w", storage.ErrCorrupt, err)
	}
	ended := false
	for {
		var ch checkpointLine
		switch err := lines.Decode(&ch); {
		case errors.Is(err, io.EOF) && p.Status.Terminal() && !ended:
			return p, nil, fmt.Errorf("%w: exported history of %q is truncated", storage.ErrCorrupt, p.ID)
		case errors.Is(err, io.EOF):
			return p, history, nil
		case err != nil:
			return p, nil, fmt.Errorf("%w: exported history of %q: %w", storage.ErrCorrupt, p.ID, err)
		}
		c := ch.checkpoint()
		history = append(history, c)
		for _, ev := range c.Events {
			ended = ev.Kind == checkpoint.KindEnded || ended && !TakesEndBack(ev)
		}
	}
}
