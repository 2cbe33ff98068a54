package pebble

import (
	"bytes"
	"errors"
	"hash/maphash"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weft-go/weft/internal/group"
	"github.com/weft-go/weft/storage"
)

// apply is a group.Apply. A group is one batch of pebble, and one sync of its log.
func (s *Store) apply(batches []storage.Batch, verdicts []error) error {
	if err := s.usable(); err != nil {
		return err
	}
	b := s.db.NewBatch()
	err := guarded(func() error { return s.write(b, batches, verdicts) })
	if err != nil {
		s.known.Forget()
		return group.Undone(errors.Join(err, b.Close()))
	}
	if b.Empty() {
		return b.Close()
	}
	return s.commit(b)
}

// usable returns an error if nothing can be committed. After a full disk it opens the database
// again. Reads wait for that, so it does not try all the time, and not during a backup: it would
// wait for that, and reads would, too. A backup that begins later finds that the disk is full.
func (s *Store) usable() error {
	err := s.db.disk.check()
	if !full(err) || s.backups.Load() > 0 || !s.tried.IsZero() && time.Since(s.tried) < s.pace {
		return err
	}
	s.calls.Lock()
	defer s.calls.Unlock()
	s.db.disk.seal()
	restore := s.db.disk.releaseLog() // pebble may remove it, with a table in its place
	next, err := s.openDatabase()
	s.tried = time.Now()
	if err != nil {
		restore()
		if errors.Is(err, storage.ErrFailed) {
			s.db.disk.fail(err)
		}
		return err
	}
	s.known.Forget()
	last := s.db
	s.db = next
	err = last.close()
	if failure := last.disk.failure(); !full(failure) { // it has come meanwhile
		next.disk.fail(failure)
		return failure
	}
	return err
}

// write applies batches to b, those whose conditions hold.
func (s *Store) write(b *pebble.Batch, batches []storage.Batch, verdicts []error) error {
	s.written.clear()
	for i := range batches {
		ok, err := s.hold(batches[:i], verdicts, batches[i].If)
		if err != nil {
			return err
		}
		if !ok {
			verdicts[i] = storage.ErrConflict
			continue
		}
		for _, o := range batches[i].Ops {
			if err := do(b, o); err != nil {
				return err
			}
		}
		if len(batches) > 1 {
			s.written.note(batches[i].Ops)
		}
		s.known.Note(&batches[i])
	}
	return nil
}

// commit applies b and syncs it. Until then, reads see the state before.
func (s *Store) commit(b *pebble.Batch) error {
	returned := false
	err := guarded(func() error {
		err := s.db.Apply(b, pebble.Sync)
		returned = true
		return err
	})
	if !returned { // pebble may hold its locks
		s.stuck = true
		s.db.disk.fail(err)
	}
	if failure := s.db.disk.failure(); failure != nil {
		err = failure // pebble may not have noticed: see disk
	}
	if err != nil {
		s.known.Forget()
		return err
	}
	s.db.advance()
	return b.Close()
}

// hold reports whether conditions hold after the batches before, as far as they were not
// refused. Those on keys that were written or read lately are judged in memory: the folder is
// locked, so nobody else writes.
func (s *Store) hold(before []storage.Batch, verdicts []error, conditions []storage.Condition) (bool, error) {
	for _, c := range conditions {
		holds, known := s.known.Judge(c)
		if !known {
			var err error
			if holds, err = s.look(before, verdicts, c); err != nil {
				return false, err
			}
			if holds {
				s.known.Learn(c)
			}
		}
		if !holds {
			return false, nil
		}
	}
	return true, nil
}

// look judges c by the batches before and the database, in which everything is synced.
func (s *Store) look(before []storage.Batch, verdicts []error, c storage.Condition) (bool, error) {
	if len(before) > 0 && s.written.has(c.Key) {
		for i, b := range slices.Backward(before) {
			if verdicts[i] != nil {
				continue
			}
			for _, o := range slices.Backward(b.Ops) {
				if bytes.Equal(o.Key, c.Key) {
					return judge(c, o.Value, o.Kind == storage.PutOp), nil
				}
			}
		}
	}
	v, closer, err := s.db.Get(c.Key)
	if errors.Is(err, pebble.ErrNotFound) {
		return judge(c, nil, false), nil
	}
	if err != nil {
		return false, translate(err)
	}
	holds := judge(c, v, true)
	return holds, closer.Close()
}

func judge(c storage.Condition, value []byte, there bool) bool {
	switch c.Kind {
	case storage.IsEqual:
		return there && bytes.Equal(value, c.Value)
	case storage.IsAbsent:
		return !there
	default:
		return there
	}
}

// do adds o to b.
func do(b *pebble.Batch, o storage.Op) error {
	switch o.Kind {
	case storage.PutOp:
		return b.Set(o.Key, o.Value, nil)
	case storage.DeleteOp:
		return b.Delete(o.Key, nil)
	}
	start, end := o.Range.Start, o.Range.End
	if end == nil {
		end = afterAll
	}
	if bytes.Compare(start, end) >= 0 {
		return nil
	}
	return b.DeleteRange(start, end, nil)
}

// afterAll is behind all keys that a store may have.
var afterAll = bytes.Repeat([]byte{0xff}, storage.MaxKey+1)

// written is the set of hashes of the keys that a group writes. A batch with a DeleteRange has
// a group of its own.
type written struct {
	seed   maphash.Seed
	hashes map[uint64]struct{}
}

func (w *written) clear() {
	if w.hashes == nil {
		w.seed, w.hashes = maphash.MakeSeed(), map[uint64]struct{}{}
	}
	clear(w.hashes)
}

func (w *written) note(ops []storage.Op) {
	for _, o := range ops {
		w.hashes[maphash.Bytes(w.seed, o.Key)] = struct{}{}
	}
}

// has reports whether the group may write key. If it does not, this is certain.
func (w *written) has(key []byte) bool {
	_, there := w.hashes[maphash.Bytes(w.seed, key)]
	return there
}
