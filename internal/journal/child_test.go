package journal

import (
	"bytes"
	"testing"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// FMT-12: the output of a child is copied into its parent's record of it, including fields
// that a later release added to either.
func TestCopyOfAnEndKeepsWhatIsUnknown(t *testing.T) {
	s := new(memory.Store)
	wf := &Workflow{ID: "kid", Generation: "K", ByGeneration: true}
	link := NewChild(Parent{ID: "o", Generation: "G", Operation: "1"}, wf.ID, 1)
	put := func(op storage.Op, err error) []byte {
		t.Helper()
		if err == nil {
			op.Value, err = golden.Later(op.Key, op.Value, Version, string(op.Key))
		}
		if err == nil {
			err = s.Commit(ctx, storage.Batch{Ops: []storage.Op{op}})
		}
		if err != nil {
			t.Fatal(err)
		}
		return op.Value
	}
	end := Output{Generation: wf.Generation, Status: checkpoint.StatusCompleted, Data: []byte("1")}
	put(PutOutput(wf.ID, &end))
	before := put(link.Put())

	link, err := OpenChild(storage.Entry{Key: keys.Child("o", "1"), Value: before})
	if err != nil {
		t.Fatal(err)
	}
	if link.End, err = ReadOutput(ctx, s, wf); err != nil {
		t.Fatal(err)
	}
	got, err := link.Put()
	if err != nil {
		t.Fatal(err)
	}

	// The same for a later release that copies both.
	fields := map[uint64]any{}
	if _, err := record.Open(got.Key, before, Version, &fields); err != nil {
		t.Fatal(err)
	}
	output := map[any]any{}
	raw, err := s.Get(ctx, keys.Output(wf.ID))
	if err == nil {
		_, err = record.Open(keys.Output(wf.ID), raw, Version, &output)
	}
	if err != nil {
		t.Fatal(err)
	}
	fields[childEnd] = output
	if want, err := record.Seal(got.Key, Version, fields, nil); err != nil || !bytes.Equal(got.Value, want) {
		t.Errorf("the link is\n%x, want\n%x (%v)", got.Value, want, err)
	}
}
