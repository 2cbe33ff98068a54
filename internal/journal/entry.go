package journal

import (
	"crypto/rand"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/saturate"
)

// An Entry is a checkpoint with what only the engine uses of it.
type Entry struct {
	checkpoint.Checkpoint

	generation string
	commit     CommitID
	skip       uint64        // the next number, if it is not Number+1
	ahead      time.Duration // by which Time was ahead of the wall clock of who wrote it
}

// A CommitID identifies one attempt to append a checkpoint.
type CommitID [16]byte

// NewCommitID returns a unique ID.
func NewCommitID() (id CommitID) {
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	return id
}

// stored is the encoded form of a checkpoint: log:{generation}:{n}.
type stored struct {
	Generation string             `cbor:"1,keyasint"`
	Commit     []byte             `cbor:"2,keyasint"`
	Time       int64              `cbor:"3,keyasint"`
	Events     []checkpoint.Event `cbor:"4,keyasint,omitempty"`
	Skip       uint64             `cbor:"5,keyasint,omitempty"`
	Ahead      int64              `cbor:"6,keyasint,omitempty"` // Time is ahead of the writer's clock, in microseconds
}

// seal encodes c for storage under key. It needs space.
func (c *Entry) seal(key []byte, space *stored) ([]byte, error) {
	*space = stored{
		Generation: c.generation,
		Commit:     c.commit[:],
		Time:       Micro(c.Time),
		Events:     c.Events,
		Skip:       c.skip,
		Ahead:      c.ahead.Microseconds(),
	}
	return record.Seal(key, Version, space, nil)
}

func open(key []byte, n uint64, raw []byte) (Entry, error) {
	var s stored
	if _, err := record.Open(key, raw, Version, &s); err != nil {
		return Entry{}, err
	}
	c := Entry{
		Checkpoint: checkpoint.Checkpoint{Number: n, Time: Time(s.Time), Events: s.Events},
		generation: s.Generation,
		skip:       s.Skip,
		ahead:      saturate.Times(max(s.Ahead, 0), time.Microsecond),
	}
	copy(c.commit[:], s.Commit)
	return c, nil
}
