package control

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
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
)

// eventStream is the media type of server-sent events.
const eventStream = "text/event-stream"

// Limits of streams.
const (
	mostStreams    = 100 // of a process
	mostKeyStreams = 8   // of a key

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

func badEventID() *problem { return invalid(issue{"Last-Event-ID", "is no id of an event"}) }

// followEvents answers the events of a run behind Last-Event-ID, and then those to come, until the run
// has ended. If that event is not there any more, because the run has continued as new or was purged, the
// whole history is behind it. If nothing is left of a run that has ended, the answer is 204.
func (c *call) followEvents(ctx context.Context, id string, data bool) (answer, error) {
	after, err := lastEventID(c.request.Header)
	if err != nil {
		return answer{}, err
	}
	wf, err := c.record(ctx, id) // before its events: if it has ended, they are the last ones
	if err != nil {
		return answer{}, err
	}
	first := func() (weft.Page[weft.Event], error) {
		return c.engine.Events(ctx, id, weft.PageRequest{Cursor: after, Limit: 1, Ascending: true})
	}
	left, err := first()
	if eventsGone(err) {
		after = ""
		left, err = first()
	}
	switch {
	case errors.Is(err, engine.ErrInvalid):
		return answer{}, badEventID()
	case err != nil:
		return answer{}, err
	case wf.Status.Terminal() && len(left.Data) == 0:
		return answer{status: http.StatusNoContent}, nil
	}
	if err := c.enterStream(); err != nil {
		return answer{}, err
	}
	return answer{
		header: http.Header{"Content-Type": {eventStream}},
		end:    func() { c.streams.leave(c.keyName()) },
		stream: func(w http.ResponseWriter, r *http.Request) {
			s := &eventWriter{w: w, control: http.NewResponseController(w)}
			ctx, release := c.hold(r.Context())
			defer release()
			if most := s.bound(); most > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, most)
				defer cancel()
			}
			_ = c.follow(ctx, s, id, after, data) // the client connects again
		},
	}, nil
}

// enterStream counts a stream, which the end of its answer frees. The error is a problem if there are too many.
func (c *call) enterStream() error {
	if c.streams.enter(c.keyName(), mostKeyStreams, mostStreams) {
		return nil
	}
	p := newProblem(http.StatusTooManyRequests, "rate_limited", "The key, or this process, has as many streams as it may.").after(streamBeat)
	p.Retry = sameKey
	return p
}

// keyName names the caller's key in this process.
func (c *call) keyName() string { return c.who.tenant() + "/" + c.who.id }

// An eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// bound returns how long the stream may last: 0 is for ever. If middleware hides that writes can have
// a deadline, a client that does not read could hold the stream.
func (s *eventWriter) bound() time.Duration {
	if s.control.SetWriteDeadline(time.Now().Add(streamWrite)) != nil {
		return streamBounded
	}
	return 0
}

// write writes and flushes.
func (s *eventWriter) write(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

func (s *eventWriter) event(b *wire.Event) error {
	data, err := json.Marshal(b) // without line breaks
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("id: %s\ndata: %s\n\n", b.EventID, data))
}

// follow writes the events of a run behind one of them until the run has ended or ctx ends.
func (c *call) follow(ctx context.Context, s *eventWriter, id, after string, data bool) error {
	if err := s.write(": \n\n"); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan *weft.Event)
	var (
		followed  error // when events is closed
		following sync.WaitGroup
	)
	following.Go(func() {
		defer close(events)
		followed = c.sendEvents(ctx, id, after, events)
	})
	defer following.Wait()
	defer cancel()
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	for {
		select {
		case e, more := <-events:
			if !more {
				if followed != nil && !noSuchRun(followed) {
					return followed
				}
				return s.write("event: end\ndata: {}\n\n")
			}
			b := eventOf(c.who, e, data)
			if err := s.event(&b); err != nil {
				return err
			}
		case <-beat.C:
			if err := s.write(": \n\n"); err != nil {
				return err
			}
		}
	}
}

// sendEvents sends the events of a run behind one of them until the run has ended or ctx ends.
func (c *call) sendEvents(ctx context.Context, id, after string, to chan<- *weft.Event) (err error) {
	for again := true; again; again = eventsGone(err) {
		err = nil
		for e, failed := range c.engine.Follow(ctx, id, after) {
			if err = failed; err != nil {
				break
			}
			select {
			case to <- &e:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		after = "" // if events are gone, a client gets those that there are
	}
	return err
}
