package trail

import (
	"maps"
	"time"

	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/saturate"
)

// Skipped are the entries that an engine skips. The zero value has none. Its methods are safe for
// concurrent use.
type Skipped struct {
	mu   lock.Mutex
	met  map[string]time.Time // when each was met last
	most int                  // with more, those are forgotten that were not met for long
}

// many is the number of entries, some 10 MB, up to which none is forgotten.
const many = 50_000

// Add adds an entry, in an engine that polls every poll. If there are many, it forgets those that were not
// met for long: they are gone, or the poll looks at them again.
func (s *Skipped) Add(entry []byte, poll time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.met == nil {
		s.met = map[string]time.Time{}
	}
	now := time.Now()
	if s.met[string(entry)] = now; len(s.met) <= max(many, s.most) {
		return
	}
	long := saturate.Times(2, max(aMinute, poll)) // as a rule, all are met at least once in half of that
	maps.DeleteFunc(s.met, func(_ string, at time.Time) bool { return now.Sub(at) > long })
	s.most = 2 * len(s.met)
}

// Has reports whether an entry is to be skipped. It was met then.
func (s *Skipped) Has(entry []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, skipped := s.met[string(entry)]
	if skipped {
		s.met[string(entry)] = time.Now()
	}
	return skipped
}

// Clear forgets all entries.
func (s *Skipped) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.met, s.most = nil, 0
}
