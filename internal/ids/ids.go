// Package ids mints ids: a prefix that names what the id is of, and a ULID.
//
// A ULID has the time of its minting, to a millisecond, and 80 random bits, so nobody has to be
// asked for one. Ids are identity. The order of a log is the order of its numbers, not of its ids.
package ids

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// A Prefix says what an id is of.
type Prefix string

// The prefixes.
const (
	Run     Prefix = "wrun_"
	Step    Prefix = "step_"
	Event   Prefix = "evnt_"
	Hook    Prefix = "hook_"
	Message Prefix = "msg_"
	Chunk   Prefix = "chnk_"
	Signal  Prefix = "sig_"
)

// A Source mints ids that rise, also within a millisecond and while the clock is set back. The zero
// Source is ready to use. Its methods are safe for concurrent use.
type Source struct {
	mu      sync.Mutex
	last    uint64 // milliseconds of the id that was minted last
	entropy *ulid.MonotonicEntropy
}

// New mints an id at a time. If the clock was set back, the id has the time of the one before.
func (s *Source) New(p Prefix, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entropy == nil {
		s.entropy = ulid.Monotonic(rand.Reader, math.MaxUint32)
	}
	s.last = max(s.last, milliseconds(now))
	id, err := ulid.New(s.last, s.entropy)
	if errors.Is(err, ulid.ErrMonotonicOverflow) { // the next millisecond has new random bits
		s.last++
		id, err = ulid.New(s.last, s.entropy)
	}
	if err != nil {
		panic(fmt.Sprintf("ids: %v", err)) // the year 10889: random bytes cannot fail
	}
	return string(p) + id.String()
}

// ULID returns a ULID without a prefix. Of one millisecond, later ones are greater. A time outside the range of a ULID, such
// as one before 1970 from a clock that was not set, is replaced by the nearest in range.
func ULID(at time.Time) string {
	return ulid.MustNew(milliseconds(at), ulid.DefaultEntropy()).String()
}

// Time returns when an id was minted.
func Time(p Prefix, id string) (time.Time, error) {
	u, err := parse(p, id)
	return ulid.Time(u.Time()), err
}

// Numbered returns the id of the entry of a log that has a number: in place of the upper 40 random bits,
// an id has the number. low is the lower 40 bits.
func Numbered(p Prefix, at time.Time, n, low uint64) string {
	var id ulid.ULID
	_ = id.SetTime(milliseconds(at)) // cannot fail with such a time
	for i := range 5 {
		shift := 8 * (4 - i)
		id[6+i], id[11+i] = byte(n>>shift), byte(low>>shift)
	}
	return string(p) + id.String()
}

// Number returns the number of an id of Numbered.
func Number(p Prefix, id string) (n uint64, err error) {
	u, err := parse(p, id)
	for _, b := range u[6:11] {
		n = n<<8 | uint64(b)
	}
	return n, err
}

func parse(p Prefix, id string) (ulid.ULID, error) {
	text, ok := strings.CutPrefix(id, string(p))
	if !ok {
		return ulid.ULID{}, fmt.Errorf("ids: %.100q does not begin with %s", id, p)
	}
	u, err := ulid.ParseStrict(text)
	if err != nil {
		return ulid.ULID{}, fmt.Errorf("ids: %.100q: %w", id, err)
	}
	return u, nil
}

func milliseconds(t time.Time) uint64 {
	return min(uint64(max(t.UnixMilli(), 0)), ulid.MaxTime())
}
