package runs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/internal/chunks"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/payload"
	"github.com/weft-go/weft/stream"
)

type streamParams struct {
	RunID  string `json:"runId" in:"path"`
	Name   string `json:"name" in:"path"`
	At     int64  `json:"at,omitempty" in:"query"`
	Limit  *int   `json:"limit,omitempty" in:"query"`
	Cursor string `json:"cursor,omitempty" in:"query"`
}

func (p *streamParams) paging() *operation.Paging {
	return &operation.Paging{Limit: p.Limit, Cursor: p.Cursor}
}

func (p *streamParams) Check() []operation.Issue {
	issues := p.paging().Check()
	if payload.CheckName("name of stream", p.Name, keys.MaxName) != nil {
		issues = append(issues, operation.Issue{Path: "/name", Problem: fmt.Sprintf("must have 1 to %d bytes of UTF-8", keys.MaxName)})
	}
	return issues
}

// A chunkPlace is the place of a chunk in a stream.
type chunkPlace struct {
	Index uint64 `cbor:"1,keyasint"`
}

// from returns the index at which p begins in a stream of a run that has count chunks.
func (p *streamParams) from(list string, count uint64) (uint64, error) {
	if p.Cursor == "" {
		return chunks.From(p.At, count), nil
	}
	var at chunkPlace
	if !operation.OpenCursor(list, p.Cursor, &at) {
		return 0, operation.BadCursor()
	}
	return at.Index, nil
}

// readStream answers a page of a stream of a run, or follows the stream.
func readStream(ctx context.Context, c *call, p *streamParams) (operation.Answer, error) {
	id, err := c.at(p.RunID)
	if err != nil {
		return operation.Answer{}, err
	}
	state, err := c.streamState(ctx, id, p.Name)
	if err != nil {
		return operation.Answer{}, err
	}
	list := "chunks:" + string(keys.Stream(id, p.Name))
	from, err := p.from(list, state.Count)
	if err != nil {
		return operation.Answer{}, err
	}
	if c.Request != nil && accepts(c.Request.Header, eventStream) {
		return c.followStream(ctx, id, p, from, state)
	}
	page, err := c.chunkPage(ctx, id, p.Name, from, state, p.paging().Most())
	if err == nil {
		page.Tail, err = operation.SealCursor(list, &chunkPlace{from + uint64(len(page.Data))})
	}
	if err == nil && page.HasMore {
		page.Cursor = &page.Tail
	}
	return operation.Answer{Body: page}, err
}

// streamState returns how many chunks a stream of a run has, and whether more may come. A stream that nothing was
// written to is empty.
func (c *call) streamState(ctx context.Context, id, name string) (s chunks.State, err error) {
	wf, err := c.record(ctx, id) // before the head: nothing is added behind the end
	if err != nil {
		return s, err
	}
	h, err := chunks.Of(id, name, wf.Generation).Read(ctx, c.Store)
	if err != nil {
		return s, err
	}
	return chunks.State{Generation: wf.Generation, Count: h.Count, Over: wf.Status.Terminal() || h.Closed != ""}, nil
}

// chunksFrom calls give with the chunks of a stream from an index on. It waits for those to come, and ends with the stream,
// with ctx, or with an error of give.
func (c *call) chunksFrom(ctx context.Context, id, name string, from uint64, give func(*wire.Chunk) error) error {
	for s, err := range c.Engine.ReadStream(ctx, id, name, int64(min(from, math.MaxInt64))) {
		if err == nil {
			err = give(chunkOf(&s))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func chunkOf(s *stream.Stored) *wire.Chunk {
	data := s.Data
	if data == nil {
		data = []byte{} // a codec may encode a value so; JSON never does
	}
	return &wire.Chunk{Index: s.Index, ChunkID: s.ID, CreatedAt: s.Time.UTC(), Operation: s.Operation, Attempt: s.Attempt, Data: jsonOf(s.Codec, data)}
}

// errPageEnds ends the reading of a page.
var errPageEnds = errors.New("the page is complete")

// chunkPage returns a page of the chunks that there are, without its place. If a chunk is damaged, the page ends before
// it, and the one that would begin with it is an error.
func (c *call) chunkPage(ctx context.Context, id, name string, from uint64, state chunks.State, limit int) (*wire.ChunkPage, error) {
	page := &wire.ChunkPage{Data: []wire.Chunk{}, Closed: state.Over}
	limit = int(min(uint64(limit), state.Count-min(from, state.Count)))
	if limit == 0 {
		return page, nil
	}
	size := 0
	err := c.chunksFrom(ctx, id, name, from, func(b *wire.Chunk) error {
		if size += 300 + len(b.Data); size > operation.MaxPageBytes && len(page.Data) > 0 {
			return errPageEnds
		}
		page.Data = append(page.Data, *b)
		if len(page.Data) == limit {
			return errPageEnds
		}
		return nil
	})
	if err != nil && err != errPageEnds && (noSuchRun(err) || len(page.Data) == 0) {
		return nil, err
	}
	page.HasMore = from+uint64(len(page.Data)) < state.Count
	return page, nil
}

// followStream answers the chunks of a stream behind Last-Event-ID, or from an index on, and then those to come, until
// the stream is closed or the run has ended. If nothing is left, the answer is 204.
func (c *call) followStream(ctx context.Context, id string, p *streamParams, from uint64, state chunks.State) (operation.Answer, error) {
	last, err := lastEventID(c.Request.Header)
	if err != nil {
		return operation.Answer{}, err
	}
	opening := ""
	switch {
	case last != "":
		n, err := strconv.ParseInt(last, 10, 64)
		if err != nil || n < -1 || n == math.MaxInt64 {
			return operation.Answer{}, badEventID()
		}
		from = uint64(n + 1)
	case p.At < 0:
		// A client that connects again before the first chunk has come continues here, although the end is elsewhere then.
		opening = fmt.Sprintf("id: %d\n\n", int64(from)-1)
	}
	if from >= state.Count && state.Over {
		return operation.Answer{Status: http.StatusNoContent}, nil
	}
	if from < state.Count { // if it is damaged, the client is told before the answer begins
		err := c.chunksFrom(ctx, id, p.Name, from, func(*wire.Chunk) error { return errPageEnds })
		if err != errPageEnds {
			return operation.Answer{}, err
		}
	}
	return c.events(opening, func(ctx context.Context, give func(string, any) error) error {
		return c.chunksFrom(ctx, id, p.Name, from, func(b *wire.Chunk) error { return give(strconv.FormatInt(b.Index, 10), b) })
	})
}
