package bolt

import (
	"fmt"
	"runtime/debug"

	"go.etcd.io/bbolt"

	"github.com/weft-go/weft/storage"
)

// guarded runs f, which accesses the mapped file, and returns a panic in it as an error.
// bbolt panics on invalid pages. Access beyond the end of a truncated file causes a fault,
// which would kill the process; SetPanicOnFault makes it a panic.
func guarded(f func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", storage.ErrCorrupt, r)
		}
	}()
	return f()
}

// transaction begins a transaction. It may panic, as bbolt does. bbolt then keeps its locks,
// so no other transaction may begin.
func (s *Store) transaction(writable bool) (*bbolt.Tx, error) {
	s.begin.Lock()
	defer s.begin.Unlock()
	if why := s.broken.Load(); why != nil {
		return nil, *why
	}
	begun := false
	defer func() {
		if !begun {
			s.stuck.Store(true)
			s.giveUp(fmt.Errorf("%w: the first pages of the file are invalid", storage.ErrCorrupt))
		}
	}()
	tx, err := s.db.Begin(writable)
	begun = true
	return tx, err
}

// giveUp makes every later call return err.
func (s *Store) giveUp(err error) {
	err = fmt.Errorf("%w: %w", storage.ErrFailed, err)
	s.broken.CompareAndSwap(nil, &err)
}
