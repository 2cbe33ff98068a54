package engine

import (
	"context"
	"errors"
	"time"

	"github.com/weft-go/weft/storage"
)

// A tellingStore tells of its commits.
type tellingStore struct {
	storage.Storage
	committed func(CommittedEvent)
}

// told returns s, or a store on s that calls committed after each commit if that is not nil.
func told(s storage.Storage, committed func(CommittedEvent)) storage.Storage {
	if committed == nil {
		return s
	}
	return tellingStore{s, committed}
}

func (s tellingStore) Unwrap() storage.Storage { return s.Storage }

func (s tellingStore) Commit(ctx context.Context, b storage.Batch) error {
	e := CommittedEvent{Operations: len(b.Ops), Bytes: b.Size().Bytes, Group: 1, Outcome: CommitApplied}
	b.Group = &e.Group
	began := time.Now()
	err := s.Storage.Commit(ctx, b)
	e.Took = time.Since(began)
	if err != nil {
		e.Outcome = outcomeOf(err)
		if e.Outcome != CommitConflict {
			e.Error = err.Error()
		}
	}
	s.committed(e)
	return err
}

// outcomeOf returns what the error of a commit means. See storage.Storage.
func outcomeOf(err error) CommitOutcome {
	_, withdrawn := errors.AsType[*storage.WithdrawnError](err)
	switch {
	case errors.Is(err, storage.ErrConflict):
		return CommitConflict
	case withdrawn, errors.Is(err, storage.ErrInvalidBatch), errors.Is(err, errors.ErrUnsupported):
		return CommitFailed
	}
	return CommitUnknown
}
