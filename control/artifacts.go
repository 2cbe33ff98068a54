package control

import (
	"context"
	"io"
	"time"
)

// Artifacts keeps the artifacts of deployments, by digest.
type Artifacts interface {
	// Put keeps what r has, if its SHA-256 is digest (hex). What Put has acknowledged survives a power loss.
	Put(ctx context.Context, digest string, r io.Reader) (size int64, err error)

	// Open returns an artifact. The error of an unknown one wraps fs.ErrNotExist.
	Open(ctx context.Context, digest string) (io.ReadSeekCloser, error)

	// Sweep removes what was put before a time and is not needed.
	Sweep(ctx context.Context, before time.Time, needed func(digest string) (bool, error)) error
}
