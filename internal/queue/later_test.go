package queue_test

import (
	"testing"
	"time"

	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/queue"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// What a later release has stored in a record stays when the record is written again.
func TestWhatALaterReleaseWroteIsKept(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := new(memory.Store)
		q := open(t, s)
		publish(t, q, "k", "x")
		before := map[string][]byte{}
		for _, family := range []string{"wmsg:", "wkey:"} {
			page, err := s.Scan(t.Context(), storage.Prefix([]byte(family)))
			if err != nil || len(page) != 1 {
				t.Fatal(page, err)
			}
			later, err := golden.Later(page[0].Key, page[0].Value, 1, family)
			if err == nil {
				err = s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(page[0].Key, later)}})
			}
			if err != nil {
				t.Fatal(err)
			}
			before[string(page[0].Key)] = later
		}
		d := one(t, q)
		for _, as := range []queue.Outcome{queue.Extend, queue.Retry} {
			if err := settle(q, d, as); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		publish(t, q, "k", "y")
		for key, was := range before {
			is, err := s.Get(t.Context(), []byte(key))
			if err != nil || string(is) == string(was) {
				t.Fatalf("%s was not written again: %v", key, err)
			}
			if lost, err := golden.Kept([]byte(key), was, is, 1); err != nil || lost != "" {
				t.Errorf("%s: %s %v", key, lost, err)
			}
		}
	})
}
