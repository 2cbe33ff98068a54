package operation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// WritePatience is within which a client must take an answer, or a part of one.
const WritePatience = 10 * time.Second

// An Answer is what an operation answers. Either Body is its JSON, or Stream writes it.
type Answer struct {
	Status int         // 0: 200
	Body   any         // encoded as JSON; nil: none
	Header http.Header // further header fields; nil: none
	Stream func(w http.ResponseWriter, r *http.Request)
	End    func() // frees what the answer holds, whether it was written or not; nil: nothing
}

// Code is the status of a.
func (a Answer) Code() int {
	if a.Status == 0 {
		return http.StatusOK
	}
	return a.Status
}

// JSON returns the body, encoded; nil: there is none.
func (a Answer) JSON() (json.RawMessage, error) {
	if a.Body == nil {
		return nil, nil
	}
	if raw, ok := a.Body.(json.RawMessage); ok {
		return raw, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(a.Body); err != nil {
		return nil, fmt.Errorf("control: encode an answer: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
