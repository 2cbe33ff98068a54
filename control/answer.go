package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// writePatience is within which a client must take an answer, or a part of one.
const writePatience = 10 * time.Second

// An answer is what an operation answers. Either body is its JSON, or stream writes it.
type answer struct {
	status int         // 0: 200
	body   any         // encoded as JSON; nil: none
	header http.Header // further header fields; nil: none
	stream func(w http.ResponseWriter, r *http.Request)
	end    func() // frees what the answer holds, whether it was written or not; nil: nothing
}

// code is the status of a.
func (a answer) code() int {
	if a.status == 0 {
		return http.StatusOK
	}
	return a.status
}

// json returns the body, encoded; nil: there is none.
func (a answer) json() (json.RawMessage, error) {
	if a.body == nil {
		return nil, nil
	}
	if raw, ok := a.body.(json.RawMessage); ok {
		return raw, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(a.body); err != nil {
		return nil, fmt.Errorf("control: encode an answer: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
