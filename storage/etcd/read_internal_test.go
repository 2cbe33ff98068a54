package etcd

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A read for which a member needs long gets more time with each try.
func TestReadThatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{ctx: t.Context()}
		s.members.all = []string{"one"}
		tries := 0
		err := s.read(t.Context(), func(ctx context.Context) error {
			tries++
			select {
			case <-time.After(5 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil || tries != 3 {
			t.Errorf("%v after %d tries, want the answer to the third", err, tries)
		}
	})
}
