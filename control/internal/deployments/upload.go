package deployments

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/weft-go/weft/control/internal/operation"
	"github.com/weft-go/weft/internal/deployment"
	"github.com/weft-go/weft/storage"
)

// Limits of uploads.
const (
	uploadRate  = 64 << 10 // bytes a second at least
	uploadGrace = 10 * time.Second
	uploadFrame = 1 << 20 // bytes of a request beside the artifact
)

// IsMultipart reports whether a request is a form with files.
func IsMultipart(h http.Header) bool {
	values := h["Content-Type"]
	if len(values) != 1 {
		return false
	}
	t, _, err := mime.ParseMediaType(values[0])
	return err == nil && t == "multipart/form-data"
}

// readUpload reads the manifest and the artifact of a multipart request into p. The artifact is
// stored as it comes, so the manifest must come first and be good. No name that the client gives is
// the name of a file.
func (c *call) readUpload(ctx context.Context, p *createParams) error {
	if c.Artifacts == nil {
		return operation.NotConfigured("This service does not keep artifacts.")
	}
	if len(c.Request.Header["Content-Encoding"]) > 0 {
		return operation.NewProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "The body must not have a Content-Encoding")
	}
	held, release := c.Hold(ctx)
	defer release()
	body := c.paced(held, c.Request.Body)
	defer body.end()
	c.Request.Body = io.NopCloser(body)
	parts, err := c.Request.MultipartReader()
	if err != nil {
		return operation.Invalid(operation.Issue{Problem: "is not well-formed multipart/form-data"})
	}
	if err := c.readParts(ctx, parts, p); err != nil {
		if held.Err() != nil && c.IsClosing() {
			return operation.Closing()
		}
		if held.Err() != nil && ctx.Err() == nil {
			return operation.UnknownKey()
		}
		return body.explain(err)
	}
	raw, err := json.Marshal(p)
	c.Raw = raw
	return err
}

func (c *call) readParts(ctx context.Context, parts *multipart.Reader, p *createParams) error {
	for {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch name := part.FormName(); {
		case name == "manifest" && p.Manifest == nil:
			raw, err := io.ReadAll(io.LimitReader(part, uploadFrame))
			if err != nil {
				return err
			}
			if err := operation.CheckJSON(raw, operation.MaxDepth); err != nil {
				return operation.Invalid(operation.Issue{Path: "/manifest" + err.Path, Problem: err.Problem})
			}
			p.Manifest = raw
			if _, err := p.manifest(); err != nil {
				return err
			}
		case name == "artifact" && p.Manifest == nil:
			return operation.Invalid(operation.Issue{Path: "/artifact", Problem: "comes before the manifest"})
		case name == "artifact" && p.Artifact == nil:
			digest, size, err := c.Artifacts.Put(ctx, part)
			if err != nil {
				return err
			}
			if !isDigest(digest) {
				return fmt.Errorf("control: Config.Artifacts: Put returned %.100q, which is no SHA-256", digest)
			}
			p.Artifact = &artifactParams{SHA256: digest, Size: size}
		case name == "manifest" || name == "artifact":
			return operation.Invalid(operation.Issue{Path: operation.Pointer(name), Problem: "occurs twice"})
		default:
			return operation.Invalid(operation.Issue{Path: operation.Pointer(name), Problem: "is unknown"})
		}
	}
	if p.Manifest != nil && p.Artifact == nil {
		return operation.Invalid(operation.Issue{Path: "/artifact", Problem: "is required"})
	}
	return nil
}

// A pacedBody is the body of an upload: it must not be slower than uploadRate, nor too large.
type pacedBody struct {
	io.Reader
	ctx   context.Context // reads end with it
	stop  func() bool
	conn  *http.ResponseController
	began time.Time
	read  int64
	most  int64 // bytes of an artifact
	over  bool  // it is too large
	late  bool  // it is too slow
	cut   bool  // it could not be read to its end
}

func (c *call) paced(ctx context.Context, body io.Reader) *pacedBody {
	stop := context.AfterFunc(ctx, func() { c.Conn.SetReadDeadline(time.Unix(1, 0)) }) // ends a read under way
	return &pacedBody{Reader: body, ctx: ctx, stop: stop, conn: c.Conn, most: c.MostArtifact, began: time.Now()}
}

func (b *pacedBody) Read(p []byte) (int, error) {
	due := b.began.Add(uploadGrace + time.Duration(b.read)*time.Second/uploadRate)
	b.conn.SetReadDeadline(due) // where middleware hides the connection, the time is looked at between reads
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	if time.Now().After(due) {
		b.late = true
		return 0, os.ErrDeadlineExceeded
	}
	n, err := b.Reader.Read(p)
	if b.read += int64(n); b.read > b.most+uploadFrame {
		b.over = true
		return 0, errTooLarge
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		b.late = true
	case err != nil && !errors.Is(err, io.EOF):
		b.cut = true
	}
	return n, err
}

var errTooLarge = errors.New("control: the body is too large")

// end lets the next request have its own time.
func (b *pacedBody) end() {
	b.stop()
	b.conn.SetReadDeadline(time.Time{})
}

// explain returns the problem of an upload that failed.
func (b *pacedBody) explain(err error) error {
	_, known := errors.AsType[*operation.Problem](err)
	switch {
	case known:
		return err
	case b.over:
		return operation.TooLarge(b.most)
	case b.late:
		return operation.TooSlow(fmt.Sprintf("The body must come with %d bytes a second at least.", uploadRate))
	case b.cut, errors.Is(err, io.ErrUnexpectedEOF):
		return operation.NewProblem(http.StatusBadRequest, "invalid_request", "The body could not be read")
	case errors.Is(err, io.EOF), errors.Is(err, multipart.ErrMessageTooLarge):
		return operation.Invalid(operation.Issue{Problem: "is not well-formed multipart/form-data"})
	}
	return operation.Internal(err) // of the artifacts
}

// sendArtifact writes the bytes of an artifact. Each part must be taken in time. If ctx ends, so does the
// connection.
func sendArtifact(ctx context.Context, w http.ResponseWriter, file io.ReadSeeker) {
	size, err := file.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		panic(http.ErrAbortHandler) // nothing has been written: the client sees that the connection ends
	}
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.Header().Set("Content-Disposition", "attachment")
	conn := http.NewResponseController(w)
	defer context.AfterFunc(ctx, func() { conn.SetWriteDeadline(time.Unix(1, 0)) })() // ends a write under way
	for part := make([]byte, 64<<10); ; {
		conn.SetWriteDeadline(time.Time{}) // in HTTP/2 a deadline ends an answer also while nothing is written
		n, err := file.Read(part)
		conn.SetWriteDeadline(time.Now().Add(operation.WritePatience))
		if ctx.Err() != nil {
			panic(http.ErrAbortHandler)
		}
		if _, failed := w.Write(part[:n]); failed != nil || errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// artifactKept is how long an artifact that no deployment has is kept.
const artifactKept = 24 * time.Hour

// Sweep removes the artifacts that no deployment has had for a day.
func (d *Deployments) Sweep(ctx context.Context, s storage.Storage) error {
	if d.Artifacts == nil {
		return nil
	}
	before := time.Now().Add(-artifactKept)
	used := map[string]bool{}
	all := deployment.Range("")
	all.Limit = 32 // manifests may be large
	for e, err := range storage.All(ctx, s, all) {
		if err != nil {
			return err
		}
		r, err := deployment.Open(e)
		if err != nil {
			return err // whose artifact may be one of those that would be removed
		}
		if r.Artifact != nil {
			used[hex.EncodeToString(r.Artifact.SHA256)] = true
		}
	}
	return d.Artifacts.Sweep(ctx, before, func(digest string) bool { return used[digest] })
}
