package acceptance

import (
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// Untouched adds to a batch the condition that a workflow has accepted nothing since
// its counter was read. If there is no counter yet, it creates one.
func Untouched(b []storage.Condition, ops []storage.Op, workflowID string, counted []byte) ([]storage.Condition, []storage.Op, error) {
	key := keys.SignalCounter(workflowID)
	if counted != nil {
		return append(b, storage.Equal(key, counted)), ops, nil
	}
	raw, err := record.Seal(key, version, &counter{}, nil)
	return append(b, storage.Absent(key)), append(ops, storage.Put(key, raw)), err
}
