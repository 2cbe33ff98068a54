package worldhttp

import (
	"net/http"
	"strconv"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-go/weft/internal/worldstream"
)

type streamCall struct {
	RunID      string            `json:"runId"`
	Name       string            `json:"name"`
	Chunks     []cbor.RawMessage `json:"chunks"`
	StartIndex float64           `json:"startIndex"`
}

func (s *server) write(c *call) (any, error) {
	var in streamCall
	if err := c.with(few, &in); err != nil {
		return nil, err
	}
	w := worldstream.Write{RunID: in.RunID, Name: in.Name, RequestID: c.request, Retry: c.retry}
	for i, raw := range in.Chunks {
		var v any
		if err := decoder.Unmarshal(raw, &v); err != nil {
			return nil, invalid("chunks[%d]: %v", i, err)
		}
		switch v := v.(type) {
		case []byte:
			w.Chunks = append(w.Chunks, v)
		case string:
			w.Chunks = append(w.Chunks, []byte(v))
		default:
			return nil, invalid("chunks[%d] is neither text nor bytes", i)
		}
	}
	return s.Streams.Write(c, w)
}

func (s *server) closeStream(c *call) (any, error) {
	var in streamCall
	if err := c.with(few, &in); err != nil {
		return nil, err
	}
	return struct{}{}, s.Streams.CloseStream(c, in.RunID, in.Name)
}

func (s *server) streams(c *call) (any, error) {
	in, p, err := reads(c)
	if err != nil {
		return nil, err
	}
	l, err := s.Streams.List(c, in.RunID, p)
	return page(c, l, err)
}

func (s *server) chunks(c *call) (any, error) {
	in, p, err := reads(c)
	if err != nil {
		return nil, err
	}
	return s.Streams.Chunks(c, in.RunID, in.Name, p)
}

func (s *server) info(c *call) (any, error) {
	in, _, err := reads(c)
	if err != nil {
		return nil, err
	}
	return s.Streams.Info(c, in.RunID, in.Name)
}

// readStream answers with a CBOR sequence: [index, bytes] for each chunk and, at the end of the stream, [count, null]. An
// answer that ends without that was cut, and the client goes on at the next index. The header Weft-Start-Index has the index at which
// the answer begins, from which the client goes on if it was cut before there was a chunk.
func (s *server) readStream(rw http.ResponseWriter, r *http.Request) {
	begun := false
	count, err := s.follow(rw, r, func(first uint64, cs []worldstream.Chunk) error {
		hurry(rw)
		if !begun {
			begun = true
			rw.Header().Set("Content-Type", "application/cbor-seq")
			rw.Header().Set("Weft-Start-Index", strconv.FormatUint(first, 10))
			rw.WriteHeader(http.StatusOK)
		}
		var b []byte
		for _, c := range cs {
			item, err := encoder.Marshal([]any{c.Index, c.Data})
			if err != nil {
				return err
			}
			b = append(b, item...)
		}
		if len(b) > 0 {
			if _, err := rw.Write(b); err != nil {
				return err
			}
		}
		_ = http.NewResponseController(rw).Flush() // who cannot flush answers later
		unhurry(rw)
		return nil
	})
	switch {
	case err != nil && !begun:
		respond(rw, r, nil, err)
	case err == nil:
		hurry(rw)
		_, _ = rw.Write(must(encoder.Marshal([]any{count, nil})))
	}
}

// follow gives the chunks of the stream that a call reads.
func (s *server) follow(rw http.ResponseWriter, r *http.Request, give func(first uint64, cs []worldstream.Chunk) error) (count uint64, err error) {
	c, err := read(rw, r)
	if err != nil {
		return 0, err
	}
	var in streamCall
	if err := c.with(few, &in); err != nil {
		return 0, err
	}
	if in.StartIndex != float64(int64(in.StartIndex)) {
		return 0, invalid("startIndex is no whole number: %v", in.StartIndex)
	}
	return s.Streams.Read(c, in.RunID, in.Name, int64(in.StartIndex), give)
}
