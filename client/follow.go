package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/backoff"
	"github.com/weft-go/weft/stream"
)

// eventStream is the media type of server-sent events.
const eventStream = "text/event-stream"

// mostSilence is how long a stream may be silent. A control plane sends a comment every 15 s.
const mostSilence = 45 * time.Second

// Follow yields the events of a workflow behind the one whose id is after, or from the first of its present
// life if after is "". When it has yielded what there is, it waits for more. The sequence ends when the workflow
// has ended and all of its events were yielded. See engine.Engine.Follow. If the connection breaks, Follow connects
// again and goes on behind the last event, so it yields none twice. It does so for as long as the context lasts, but it
// gives up after six attempts in succession that the control plane did not answer with a stream.
//
// There is one difference from an engine: if events are not stored any more, because the workflow has continued as new,
// Follow goes on with the first event of the present life. Its kind is continued. A workflow that is purged meanwhile
// ends the sequence, or is engine.ErrNotFound.
//
// An error ends the sequence. Errors, beside those of every call: engine.ErrNotFound; engine.ErrInvalid for an after
// that is no id of an event; an *engine.InterruptedError if the context ends.
func (c *Client) Follow(ctx context.Context, id, after string) iter.Seq2[wire.Event, error] {
	return func(yield func(wire.Event, error) bool) {
		f := &follower{Client: c, last: after, item: "event", request: &request{
			what: fmt.Sprintf("events of workflow %q", id), method: http.MethodGet, path: path("runs", id, "events"), about: subject{run: id},
		}}
		if err := following(ctx, f, func(e *wire.Event) bool { return yield(*e, nil) }); err != nil {
			yield(wire.Event{}, err)
		}
	}
}

// ReadStream yields the chunks of a stream of a workflow, as the control plane shows them. Package stream calls it; use
// stream.Stream.Read. If the connection breaks, ReadStream connects again, as Follow does, and goes on behind the last
// chunk.
//
// Errors, beside those of every call: engine.ErrNotFound; engine.ErrInvalid for a name that no stream can have;
// storage.ErrCorrupt for a damaged chunk; an *engine.InterruptedError if the context ends.
func (c *Client) ReadStream(ctx context.Context, id, name string, at int64) iter.Seq2[stream.Stored, error] {
	return func(yield func(stream.Stored, error) bool) {
		f := &follower{Client: c, item: "chunk", request: &request{
			what: fmt.Sprintf("stream %q of workflow %q", name, id), method: http.MethodGet, path: path("runs", id, "streams", name), about: subject{run: id},
		}}
		switch {
		case at > 0:
			f.last = strconv.FormatInt(at-1, 10)
		case at < 0: // the first answer says where that is
			f.request.query = url.Values{"at": {strconv.FormatInt(at, 10)}}
		}
		if err := following(ctx, f, func(b *wire.Chunk) bool {
			return yield(stream.Stored{ID: b.ChunkID, Index: b.Index, Time: b.CreatedAt, Operation: b.Operation, Attempt: b.Attempt, Data: b.Data}, nil)
		}); err != nil {
			yield(stream.Stored{}, err)
		}
	}
}

// DecodeChunk decodes what ReadStream yields into v, a pointer. Package stream calls it.
func (c *Client) DecodeChunk(ctx context.Context, s stream.Stored, v any) error {
	if err := c.decodePayload(ctx, s.Data, v); err != nil {
		return fmt.Errorf("client: chunk %d of a stream: %w", s.Index, err)
	}
	return nil
}

// following gives what f follows until nothing more comes, or give returns false.
func following[T any](ctx context.Context, f *follower, give func(*T) bool) error {
	f.give = func(data []byte) error {
		var item T
		if err := f.decode(f.request, reply{status: http.StatusOK, body: data}, &item); err != nil {
			return err
		}
		f.over = !give(&item)
		return nil
	}
	return f.follow(ctx)
}

// A follower follows server-sent events.
type follower struct {
	*Client
	request *request
	item    string // what an event is, for errors
	give    func(data []byte) error

	last string // the id of the event that was given last, or of the one behind which the caller continues
	over bool   // nothing more comes, or the caller wants no more
}

// follow gives events until nothing more comes, or the caller wants no more.
func (f *follower) follow(ctx context.Context) error {
	if err := f.request.check(); err != nil {
		return err
	}
	if strings.ContainsFunc(f.last, func(r rune) bool { return r <= ' ' || r > '~' }) { // a header cannot have it
		return fmt.Errorf("%w: %s: %q is the id of no event", weft.ErrInvalid, f.request.what, f.last)
	}
	for failures := 1; ; failures++ {
		began, last := time.Now(), f.last
		answered, o, err := f.connect(ctx)
		pause := time.Duration(0)
		switch failed, _ := errors.AsType[*Error](err); {
		case f.over:
			return nil
		case ctx.Err() != nil:
			return f.interrupted(ctx, f.request, "the next "+f.item, false, nil)
		case answered && err != nil:
			return err
		case answered:
			failures = 0
			// A control plane that closes ends streams at once.
			if last == f.last && time.Since(began) < time.Second {
				pause = time.Second
			}
		case !o.again(failures, true):
			return err
		default:
			if pause = o.pause(failures, f.random); !fits(ctx, pause) {
				return f.interrupted(ctx, f.request, "the next attempt, after "+failed.answer(), false, failed)
			}
		}
		if pause > 0 && !backoff.Sleep(ctx, pause) {
			return f.interrupted(ctx, f.request, "the next "+f.item, false, nil)
		}
	}
}

// connect makes one request, and gives the events that answer it. If the answer is a stream, or says that nothing is
// left, it is answered, and an error is one that a repetition would meet again. Otherwise o and the error say how the
// attempt failed.
func (f *follower) connect(ctx context.Context) (answered bool, o outcome, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(f.attempt, cancel)
	defer silent.Stop()
	header := http.Header{"Accept": {eventStream + ", application/problem+json"}}
	if f.last != "" {
		header.Set("Last-Event-ID", f.last)
	}
	a, err := f.open(ctx, f.request, nil, header)
	if err == nil {
		defer a.Body.Close()
		switch {
		case a.StatusCode == http.StatusNoContent:
			f.over = true
			return true, o, nil
		case a.StatusCode == http.StatusOK && mediaType(a.Header) == eventStream:
			silent.Reset(mostSilence)
			return true, o, f.read(a.Body, func() { silent.Reset(mostSilence) })
		case a.StatusCode == http.StatusOK:
			return true, o, &Error{Status: a.StatusCode, Code: CodeBadAnswer, Message: "the answer is not a stream of events", Retry: "never", call: f.request.what}
		}
		var r reply
		if r, err = readReply(a); err == nil {
			o, failed := outcomeOf(f.request, r)
			return false, o, failed
		}
	}
	if ctx.Err() != nil {
		err = context.DeadlineExceeded // of the attempt: follow knows if it is the caller's
	}
	return false, outcome{err: err}, f.noAnswer(f.request, err)
}

// read gives the events of a stream until it breaks, ends, or the caller wants no more. heard is called for each line.
func (f *follower) read(stream io.Reader, heard func()) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, mostBody)
	var kind, id string
	var data []byte
	for lines.Scan() {
		heard()
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(lines.Bytes()) == 0:
			if err := f.dispatch(kind, id, data); err != nil || f.over {
				return err
			}
			kind, id, data = "", "", nil
		case string(name) == "id":
			id = string(value)
		case string(name) == "event":
			kind = string(value)
		case string(name) == "data" && len(data)+len(value) < mostBody:
			data = append(append(data, value...), '\n')
		case string(name) == "data":
			return f.tooLarge()
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return f.tooLarge()
	}
	return nil
}

// tooLarge is the error of an event that is larger than an answer may be.
func (f *follower) tooLarge() error {
	return &Error{Status: http.StatusOK, Code: CodeBadAnswer, Message: errTooLarge.Error(), Retry: "never", call: f.request.what, err: errTooLarge}
}

// dispatch gives one event of a stream. An event of a kind that this release does not know is passed over. One without data
// only says where the client is.
func (f *follower) dispatch(kind, id string, data []byte) error {
	switch {
	case kind == "end":
		f.over = true
		return nil
	case kind != "" && kind != "message":
		return nil
	}
	if id != "" {
		f.last = id
	}
	if len(data) == 0 {
		return nil
	}
	return f.give(data)
}
