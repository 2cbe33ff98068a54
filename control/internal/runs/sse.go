package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/engine"
)

// eventStream is the media type of server-sent events.
const eventStream = "text/event-stream"

// Limits of streams.
const (
	mostStreams    = 100 // of a process
	MostKeyStreams = 8   // of a key

	streamBeat    = 15 * time.Second // between two comments
	streamWrite   = 10 * time.Second // for one write
	streamBounded = 5 * time.Second  // of a stream whose writes cannot be bounded
)

// accepts reports whether a client asks for a media type by its name.
func accepts(h http.Header, mediaType string) bool {
	for _, value := range h["Accept"] {
		for part := range strings.SplitSeq(value, ",") {
			t, parameters, err := mime.ParseMediaType(part)
			q, weighted := parameters["q"]
			if err == nil && t == mediaType && (!weighted || strings.Trim(q, "0.") != "") {
				return true
			}
		}
	}
	return false
}

// lastEventID returns the id of the event behind which a client wants to continue, or "".
func lastEventID(h http.Header) (string, error) {
	switch values := h["Last-Event-Id"]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	}
	return "", badEventID()
}

func badEventID() *operation.Problem {
	return operation.Invalid(operation.Issue{Path: "Last-Event-ID", Problem: "is no id of an event"})
}

// followEvents answers the events of a run behind Last-Event-ID, and then those to come, until the run
// has ended. If that event is not there any more, because the run has continued as new or was purged, the
// whole history is behind it. If nothing is left of a run that has ended, the answer is 204.
func (c *call) followEvents(ctx context.Context, id string, data bool) (operation.Answer, error) {
	after, err := lastEventID(c.Request.Header)
	if err != nil {
		return operation.Answer{}, err
	}
	wf, err := c.record(ctx, id) // before its events: if it has ended, they are the last ones
	if err != nil {
		return operation.Answer{}, err
	}
	first := func() (weft.Page[weft.Event], error) {
		return c.Engine.Events(ctx, id, weft.PageRequest{Cursor: after, Limit: 1, Ascending: true})
	}
	left, err := first()
	if eventsGone(err) {
		after = ""
		left, err = first()
	}
	switch {
	case errors.Is(err, engine.ErrInvalid):
		return operation.Answer{}, badEventID()
	case err != nil:
		return operation.Answer{}, err
	case wf.Status.Terminal() && len(left.Data) == 0:
		return operation.Answer{Status: http.StatusNoContent}, nil
	}
	return c.events("", func(ctx context.Context, give func(string, any) error) error {
		return c.eventsBehind(ctx, id, after, func(e *weft.Event) error {
			b := eventOf(c.Who, e, data)
			return give(b.EventID, &b)
		})
	})
}

// A feed calls give with the id and the JSON of one event after the other. It ends when none is to come, when ctx
// ends, or with an error of give.
type feed func(ctx context.Context, give func(id string, body any) error) error

// events answers a feed as server-sent events, or with a problem if there are too many such answers. opening is written
// before the first event.
func (c *call) events(opening string, from feed) (operation.Answer, error) {
	if err := c.enterStream(); err != nil {
		return operation.Answer{}, err
	}
	return operation.Answer{
		Header: http.Header{"Content-Type": {eventStream}},
		End:    func() { c.Streams.Leave(c.keyName()) },
		Stream: func(w http.ResponseWriter, r *http.Request) {
			s := &eventWriter{w: w, control: http.NewResponseController(w)}
			ctx, release := c.Hold(r.Context())
			defer release()
			if most := s.bound(); most > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, most)
				defer cancel()
			}
			_ = s.follow(ctx, opening, from) // the client connects again
			_ = s.hurry()                    // the server writes the end of the answer
		},
	}, nil
}

// enterStream counts a stream, which the end of its answer frees. The error is a problem if there are too many.
func (c *call) enterStream() error {
	if c.Streams.Enter(c.keyName(), MostKeyStreams, mostStreams) {
		return nil
	}
	p := operation.NewProblem(http.StatusTooManyRequests, "rate_limited", "The key, or this process, has as many streams as it may.").After(streamBeat)
	p.Retry = operation.SameKey
	return p
}

// keyName names the caller's key in this process.
func (c *call) keyName() string { return c.Who.Tenant() + "/" + c.Who.ID }

// An eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// bound returns how long the stream may last: 0 is for ever. If middleware hides that writes can have
// a deadline, a client that does not read could hold the stream.
func (s *eventWriter) bound() time.Duration {
	if s.hurry() != nil {
		return streamBounded
	}
	return 0
}

// hurry has what is written next fail if the client does not take it in time.
func (s *eventWriter) hurry() error { return s.control.SetWriteDeadline(time.Now().Add(streamWrite)) }

// unhurry ends what hurry began, before the answer waits for more to write. In HTTP/2 a deadline ends an answer also while
// nothing is written.
func (s *eventWriter) unhurry() { _ = s.control.SetWriteDeadline(time.Time{}) }

// write writes and flushes.
func (s *eventWriter) write(text string) error {
	if err := s.hurry(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s *eventWriter) event(e sentEvent) error {
	data, err := json.Marshal(e.body) // without line breaks
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("id: %s\ndata: %s\n\n", e.id, data))
}

// A sentEvent is a server-sent event.
type sentEvent struct {
	id   string
	body any
}

// follow writes the events of a feed until it ends, and then that it has ended.
func (s *eventWriter) follow(ctx context.Context, opening string, from feed) error {
	if err := s.write(": \n\n" + opening); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan sentEvent)
	var (
		followed  error // when events is closed
		following sync.WaitGroup
	)
	following.Go(func() {
		defer close(events)
		followed = from(ctx, func(id string, body any) error {
			select {
			case events <- sentEvent{id, body}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	defer following.Wait()
	defer cancel()
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	for {
		s.unhurry()
		select {
		case e, more := <-events:
			if !more {
				if followed != nil {
					return followed
				}
				return s.write("event: end\ndata: {}\n\n")
			}
			if err := s.event(e); err != nil {
				return err
			}
		case <-beat.C:
			if err := s.write(": \n\n"); err != nil {
				return err
			}
		}
	}
}

// eventsBehind calls give with the events of a run behind one of them until the run has ended, or was purged, or ctx
// ends.
func (c *call) eventsBehind(ctx context.Context, id, after string, give func(*weft.Event) error) (err error) {
	for again := true; again; again = eventsGone(err) {
		err = nil
		for e, failed := range c.Engine.Follow(ctx, id, after) {
			if err = failed; err != nil {
				break
			}
			if err := give(&e); err != nil {
				return err
			}
		}
		after = "" // if events are gone, a client gets those that there are
	}
	if noSuchRun(err) {
		return nil
	}
	return err
}
