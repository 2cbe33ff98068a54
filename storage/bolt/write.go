package bolt

import (
	"bytes"
	"errors"
	"strings"
	"syscall"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/weft-go/weft/internal/group"
	"github.com/weft-go/weft/storage"
)

// apply is a group.Apply. It commits nothing if the file is not at its path.
func (s *Store) apply(batches []storage.Batch, verdicts []error) error {
	// Before the commit: after a sync the check takes several times as long. If the file is
	// moved during a commit, the effect is the same as if it is moved just after it.
	if err := s.files.Check(); err != nil {
		return err
	}
	err := s.try(batches, verdicts)
	if err == nil {
		return nil
	}
	if moved := s.files.Check(); moved != nil { // it may be why
		return moved
	}
	return err
}

// try applies a group in one transaction.
func (s *Store) try(batches []storage.Batch, verdicts []error) error {
	var tx *bbolt.Tx
	if err := guarded(func() (err error) { tx, err = s.transaction(true); return err }); err != nil {
		return err
	}
	wrote := false
	err := guarded(func() (err error) {
		wrote, err = s.write(tx, batches, verdicts)
		return err
	})
	if err != nil {
		s.known.Forget()
		s.rollback(tx)
		return group.Undone(err)
	}
	if !wrote { // a commit would sync nevertheless
		s.rollback(tx)
		return nil
	}
	return s.commit(tx)
}

// write applies batches in tx, and reports whether there is anything to commit.
func (s *Store) write(tx *bbolt.Tx, batches []storage.Batch, verdicts []error) (wrote bool, err error) {
	b := tx.Bucket(s.bucket)
	if b == nil {
		return false, s.noBucket()
	}
	c := b.Cursor() // finds a key as Get does, and reuses its memory
	for i := range batches {
		ok, err := s.hold(c, batches[i].If)
		if err != nil {
			return false, err
		}
		if !ok {
			verdicts[i] = storage.ErrConflict
			continue
		}
		for _, o := range batches[i].Ops {
			wrote = true
			if err := do(b, o); err != nil {
				return false, err
			}
		}
		s.known.Note(&batches[i])
	}
	return wrote, nil
}

// commit commits tx. A panic comes from the nodes that bbolt was about to write, so nothing
// was written. An error may come from a sync. Then the map may show data that is not on the
// disk, so the store gives up. Until it is known, reads of this transaction wait.
func (s *Store) commit(tx *bbolt.Tx) error {
	id, panicked := tx.ID(), true
	defer s.flush(id)()
	err := guarded(func() error {
		err := tx.Commit()
		panicked = false
		return err
	})
	if err != nil {
		s.known.Forget()
	}
	if panicked {
		s.rollback(tx)
		return group.Undone(err)
	}
	if err != nil {
		s.failed(id, err)
	}
	return err
}

// failed gives up after an error of the commit of transaction id, unless it is certain that nothing was written.
func (s *Store) failed(id int, err error) {
	if !full(err) || s.shows(id) {
		s.giveUp(err)
	}
}

// shows reports whether the map may show transaction id.
func (s *Store) shows(id int) bool {
	tx, err := s.transaction(false)
	if err != nil {
		return true
	}
	defer s.rollback(tx)
	return tx.ID() >= id
}

func (s *Store) rollback(tx *bbolt.Tx) {
	panicked := true
	err := guarded(func() error {
		err := tx.Rollback()
		panicked = false
		return err
	})
	if panicked {
		s.stuck.Store(true)
		s.giveUp(err)
	}
}

// full reports whether the disk was too full for the commit. Mostly bbolt notices this before it
// writes the meta page that makes a commit effective, and discards the transaction. Where the file system finds a place only when
// it syncs, the map already shows the meta page, and the disk may not have it.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) ||
		strings.HasPrefix(err.Error(), "file resize error")
}

// hold reports whether conditions hold. Those on keys that were written or read lately are judged
// in memory: the file is locked, so nobody else writes.
func (s *Store) hold(c *bbolt.Cursor, conditions []storage.Condition) (bool, error) {
	for _, cond := range conditions {
		if holds, known := s.known.Judge(cond); known && holds {
			continue
		} else if known {
			return false, nil
		}
		k, v := c.Seek(cond.Key)
		there := bytes.Equal(k, cond.Key)
		if there && v == nil {
			return false, nested(k)
		}
		ok := there == (cond.Kind != storage.IsAbsent)
		if cond.Kind == storage.IsEqual {
			ok = ok && bytes.Equal(v, cond.Value)
		}
		if !ok {
			return false, nil
		}
		s.known.Learn(cond)
	}
	return true, nil
}

// do applies o. bbolt keeps the value as it was put until the commit. A nil value would
// look like a nested bucket to the next batch of the group.
func do(b *bbolt.Bucket, o storage.Op) (err error) {
	switch o.Kind {
	case storage.PutOp:
		value := o.Value
		if value == nil {
			value = []byte{}
		}
		err = b.Put(o.Key, value)
	case storage.DeleteOp:
		err = b.Delete(o.Key)
	default:
		return deleteRange(b, o.Range)
	}
	if errors.Is(err, berrors.ErrIncompatibleValue) {
		return nested(o.Key)
	}
	return err
}

// deleteRange collects the keys first, because deleting the entry at a cursor invalidates
// its position.
func deleteRange(b *bbolt.Bucket, r storage.Range) error {
	r.Reverse = false
	var keys [][]byte
	err := walk(b.Cursor(), r, func(k, _ []byte) (bool, error) {
		key, err := copied(k)
		keys = append(keys, key)
		return true, err
	})
	for _, k := range keys {
		if err == nil {
			err = b.Delete(k)
		}
	}
	return err
}
