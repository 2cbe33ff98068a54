package etcd

import (
	"context"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Space is how full the database of a member is, in bytes.
type Space struct {
	Size  int64 // of its file
	InUse int64 // of Size: the rest is reused, and given back by defragmentation
	Quota int64 // at which the cluster refuses to write; 0 if the server does not tell

	// Exhausted: some member has reached its quota, and the cluster accepts only batches that
	// delete. Delete what is not needed, compact, defragment every member and disarm the alarm, with
	// etcdctl.
	Exhausted bool
}

// Space returns how full the database of the member is that the store uses. All members hold the
// same entries.
func (s *Store) Space(ctx context.Context) (Space, error) {
	space, err := s.space(ctx)
	return space, wrap("space", err)
}

func (s *Store) space(ctx context.Context) (space Space, err error) {
	if err := s.begin(); err != nil {
		return Space{}, err
	}
	defer s.calls.Done()
	err = s.read(ctx, func(ctx context.Context) error {
		var answer *clientv3.StatusResponse
		answer, err := s.client.Status(ctx, s.client.Endpoints()[0])
		if err != nil {
			return err
		}
		space = Space{Size: answer.DbSize, InUse: answer.DbSizeInUse, Quota: answer.DbSizeQuota}
		space.Exhausted = slices.ContainsFunc(answer.Errors, func(e string) bool { return strings.Contains(e, "NOSPACE") })
		return nil
	})
	return space, err
}
