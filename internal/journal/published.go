package journal

import (
	"fmt"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A Published is a value that a workflow has published: wf:{id}:pub:{name}. The next value of the
// name replaces it. It stays until the workflow is purged.
type Published struct {
	Generation string `cbor:"1,keyasint"`
	Codec      string `cbor:"2,keyasint,omitempty"` // "" is JSON
	Data       []byte `cbor:"3,keyasint,omitempty"`
	At         int64  `cbor:"4,keyasint,omitempty"` // the run's time when it was set, in microseconds since 1970
}

// PutPublished returns the operation that stores p under a name.
func PutPublished(id, name string, p *Published) (storage.Op, error) {
	return put(keys.Published(id, name), p)
}

// OpenPublished decodes a value that a workflow has published, and returns its name.
func OpenPublished(e storage.Entry) (name string, p *Published, err error) {
	parts, err := storage.SplitKey(e.Key)
	if err != nil || len(parts) != 4 {
		return "", nil, fmt.Errorf("%w: key %q", storage.ErrCorrupt, e.Key)
	}
	p = new(Published)
	_, err = record.Open(e.Key, e.Value, Version, p)
	return parts[3], p, err
}
