package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
)

// eventStream is the media type of server-sent events.
const eventStream = "text/event-stream"

// Limits of streams.
const (
	mostStreams    = 100 // of a process
	mostKeyStreams = 8   // of a key

	streamPoll    = 500 * time.Millisecond // between two looks at the store
	streamBeat    = 15 * time.Second       // between two comments
	streamWrite   = 10 * time.Second       // for one write
	streamBounded = 5 * time.Second        // of a stream whose writes cannot be bounded
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

// lastEventID returns the place behind which a client wants to continue, or nil.
func lastEventID(h http.Header) (*place, error) {
	values := h["Last-Event-Id"]
	if len(values) == 0 || len(values) == 1 && values[0] == "" {
		return nil, nil
	}
	at, ok := placeOf(values[0])
	if len(values) > 1 || !ok {
		return nil, invalid(issue{"Last-Event-ID", "is no id of an event"})
	}
	return &at, nil
}

// place returns the place behind which a client wants to continue, or nil: also if the event that it
// names is of a former life of the run, which has then been purged.
func (c *call) place(ctx context.Context, id string) (*place, error) {
	at, err := lastEventID(c.request.Header)
	if err != nil || at == nil {
		return nil, err
	}
	_, history, err := c.history(ctx, id, at)
	if err != nil {
		return nil, err
	}
	for cp, err := range history {
		if err != nil {
			return nil, err
		}
		if cp.Number == at.checkpoint && sameTime(eventID(cp.Time, *at), c.request.Header.Get("Last-Event-ID")) {
			return at, nil
		}
		if cp.Number >= at.checkpoint {
			break
		}
	}
	return nil, nil
}

// followEvents answers the events of a run behind Last-Event-ID, and then those to come, until the run
// has ended. If nothing is left of a run that has ended, the answer is 204.
func (c *call) followEvents(ctx context.Context, id string, data bool) (answer, error) {
	at, err := c.place(ctx, id)
	if err != nil {
		return answer{}, err
	}
	wf, history, err := c.history(ctx, id, at)
	if err != nil {
		return answer{}, err
	}
	if wf.Status.Terminal() {
		left := false
		for cp, err := range history {
			if err != nil {
				return answer{}, err
			}
			if at == nil || (place{cp.Number, len(cp.Events) - 1}).after(*at) {
				left = true
				break
			}
		}
		if !left {
			return answer{status: http.StatusNoContent}, nil
		}
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
			_ = c.follow(ctx, s, id, at, data) // the client connects again
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

func (s *eventWriter) event(b *eventBody) error {
	data, err := json.Marshal(b) // without line breaks
	if err != nil {
		return err
	}
	return s.write(fmt.Sprintf("id: %s\ndata: %s\n\n", b.EventID, data))
}

// follow writes the events of a run behind a place until the run has ended or ctx ends.
func (c *call) follow(ctx context.Context, s *eventWriter, id string, at *place, data bool) error {
	if err := s.write(": \n\n"); err != nil {
		return err
	}
	look, beat := time.NewTicker(streamPoll), time.NewTicker(streamBeat)
	defer look.Stop()
	defer beat.Stop()
	generation := ""
	for {
		wf, err := c.writeEvents(ctx, s, id, &at, data)
		if err == nil && generation == "" {
			generation = wf.Generation
		}
		if noSuchRun(err) || err == nil && (wf.Status.Terminal() || wf.Generation != generation) {
			return s.write("event: end\ndata: {}\n\n")
		}
		if err != nil {
			return err
		}
		for changed := false; !changed; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-beat.C:
				// The run may also have been purged meanwhile, so its record is read too.
				if changed, err = true, s.write(": \n\n"); err != nil {
					return err
				}
			case <-look.C:
				if changed, err = c.hasEvents(ctx, id, at); err != nil {
					return err
				}
			}
		}
	}
}

// writeEvents writes the events behind a place that there are now, and advances the place. It returns
// the record of the run as it was before they were read: if it says that the run has ended, the last
// of them was the end.
func (c *call) writeEvents(ctx context.Context, s *eventWriter, id string, at **place, data bool) (*journal.Workflow, error) {
	wf, history, err := c.history(ctx, id, *at)
	if err != nil {
		return nil, err
	}
	for cp, err := range history {
		if err != nil {
			return nil, err
		}
		for i := range cp.Events {
			p := place{cp.Number, i}
			if *at != nil && !p.after(**at) {
				continue
			}
			e := eventOf(c.who, &cp, i, data)
			if err := s.event(&e); err != nil {
				return nil, err
			}
			*at = &p
		}
	}
	return wf, nil
}

// hasEvents reports whether a run has a checkpoint after that of a place.
func (c *call) hasEvents(ctx context.Context, id string, at *place) (bool, error) {
	from := uint64(0)
	if at != nil {
		from = at.checkpoint + 1
	}
	r := keys.Checkpoints(id, from)
	r.Limit = 1
	found, err := c.store.Scan(ctx, r)
	return len(found) > 0, err
}
