package control

import (
	"context"
	"io"
	"time"

	"github.com/weft-go/weft/control/internal/deployments"
)

// MaxArtifact is the largest artifact of a deployment, in bytes.
const MaxArtifact = 256 << 20

// Artifacts keeps the bytes of the artifacts of deployments, by the SHA-256 of them in 64 lower-case
// hexadecimal digits. It is called by several goroutines at once, and by several processes if
// they share it.
type Artifacts interface {
	// Put stores all that r has, and returns its digest and its size in bytes. When it returns
	// nil, the bytes survive a power loss. Bytes that it has already count as new again: see
	// Sweep. After an error of r, which it returns wrapped, nothing has been stored.
	Put(ctx context.Context, r io.Reader) (digest string, size int64, err error)

	// Open returns the bytes. The error wraps fs.ErrNotExist if it has none with this digest. The
	// caller closes the reader.
	Open(ctx context.Context, digest string) (io.ReadSeekCloser, error)

	// Keep has the bytes count as put now, if it has them. Without them it does nothing. It is called before a
	// deployment gets the artifact.
	Keep(ctx context.Context, digest string) error

	// Sweep removes all that was put or kept before a time and that used does not report, and what
	// interrupted calls of Put had left by then.
	Sweep(ctx context.Context, before time.Time, used func(digest string) bool) error
}

// Dir keeps artifacts in a folder, which is created if it does not exist. Each artifact
// is a file whose name is its digest. No other name is ever opened. Give the folder to planes
// only.
func Dir(path string) (Artifacts, error) {
	f, err := deployments.OpenFolder(path)
	if err != nil {
		return nil, err
	}
	return f, nil
}
