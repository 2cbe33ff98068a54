package idemhttp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/weft-go/weft/internal/canon"
)

// A request is what all requests with one key must have in common. It is stored.
type request struct {
	Method string          `json:"method"`
	Path   string          `json:"path"`
	Query  string          `json:"query"`
	Body   json.RawMessage `json:"body,omitempty"`        // canonical; of JSON
	Digest string          `json:"body_sha256,omitempty"` // of another media type, and of large JSON
}

// largeJSON is from how many bytes on only the fingerprint of canonical JSON is compared. The ledger stores no
// larger request, so a conflict could not tell the difference anyway.
const largeJSON = 64 << 10

// trusted is for how many bytes there is memory before they come.
const trusted = 16 << 10

// readBody returns the whole body, of at most most bytes.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, *problem) {
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), trusted)) + bytes.MinRead)
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, most))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(most)
	}
	if err != nil {
		return nil, newProblem(http.StatusBadRequest, "invalid_request", never, "The body could not be read.")
	}
	// A body of unknown length and a media type is more likely to have been read than to be empty.
	unknown := r.ContentLength < 0 && r.Header.Get("Content-Type") != ""
	if body.Len() == 0 && (r.ContentLength > 0 || unknown || len(r.PostForm) > 0 || r.MultipartForm != nil) {
		return nil, internal(errors.New("the body was read before the guard, so requests cannot be compared: put the guard before what reads it"))
	}
	return body.Bytes(), nil
}

func tooLarge(most int64) *problem {
	return newProblem(http.StatusRequestEntityTooLarge, "too_large", never, fmt.Sprintf("The body has more than %d bytes.", most))
}

// newRequest returns the request that r with this body is.
func newRequest(r *http.Request, body []byte) (request, *problem) {
	q := request{Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery}
	if !utf8.ValidString(q.Query) {
		return request{}, newProblem(http.StatusBadRequest, "invalid_request", never, "The query is not valid UTF-8.")
	}
	switch {
	case len(body) == 0:
	case isJSON(r.Header):
		document, err := canon.JSON(body)
		if err != nil {
			return request{}, newProblem(http.StatusBadRequest, "invalid_json", never, "The body is not valid JSON: "+err.Error())
		}
		if len(document) < largeJSON {
			q.Body = document
		} else {
			q.Digest = canon.Fingerprint(document)
		}
	default:
		sum := sha256.Sum256(body)
		q.Digest = hex.EncodeToString(sum[:])
	}
	return q, nil
}

// isJSON says that the body is JSON as it is: of a media type of RFC 6839, section 3.1, and not compressed.
func isJSON(h http.Header) bool {
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return false
	}
	kind := h.Get("Content-Type")
	if kind == "application/json" {
		return true
	}
	kind, _, err := mime.ParseMediaType(kind)
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// withBody gives the handler the body that was read.
func withBody(r *http.Request, body []byte) *http.Request {
	r.ContentLength = int64(len(body))
	r.Body = http.NoBody
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return r
}
