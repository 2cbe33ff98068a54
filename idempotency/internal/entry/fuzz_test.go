package entry

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/storage"
)

// FuzzEntry: any bytes under the key of an entry, even with a right checksum, are an entry of this key or an
// error that says that they are damaged. What is an entry can be decided on, and stored again.
func FuzzEntry(f *testing.F) {
	k := Key{"shop:1", "refund-request", "req%1", "", "", "refund"}
	hash := k.Hash()
	at := k.Place(hash)
	files, err := filepath.Glob("testdata/v1/entry*")
	if err != nil || len(files) == 0 {
		f.Fatal("no golden entries", err)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte("Wf"))
	f.Add([]byte("Wf\x01\x00\x00\x00\x00\xa0"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if e, err := Open(k, hash, data); err == nil && e.Key != k {
			t.Errorf("got the entry of %+v", e.Key)
		}
		whole := golden.Envelope(at, version, data[min(len(data), 7):])
		e, err := Open(k, hash, whole)
		found, err2 := OpenAt(at, hash, whole)
		if (err == nil) != (err2 == nil) {
			t.Errorf("open says %v, openAt says %v", err, err2)
		}
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("got %v, want ErrCorrupt", err)
			}
			return
		}
		if e.Key != k || found.Key != k {
			t.Fatalf("got the entry of %+v", e.Key)
		}
		switch e.State {
		case InProgress, Released, Sealed, Failed, Indeterminate:
		default:
			t.Errorf("got an entry whose state is %q: nothing could be decided on it", e.State)
		}
		for _, s := range []Situation{{Entry: e}, {Entry: e, Same: true}, {Entry: e, Same: true, Verify: true, Holder: Settled}, {Entry: e, Same: true, TakeOver: true, Holder: Settled}} {
			if got := Decide(s); got < StepClaim || got > StepEvict {
				t.Errorf("%v: step %d", s, got)
			}
		}
		now := time.Unix(1, 0)
		follow := []*Entry{e.next(now)}
		if e.State == InProgress || e.State == Indeterminate {
			follow = append(follow, e.Released(now), e.Sealed(now, "id", Result{}), e.Failed(now, "no", ""), e.Indeterminate(now, "why"))
		}
		for _, next := range follow {
			c, err := Changing(k, hash, e, next)
			if err != nil {
				t.Fatalf("what was opened cannot be sealed: %v", err)
			}
			if bytes.Equal(next.Raw, e.Raw) {
				t.Error("two writes are of equal bytes")
			}
			again, err := Open(k, hash, next.Raw)
			if err != nil || again.State != next.State || again.Updated <= e.Updated && e.Updated < 1<<62 {
				t.Errorf("got %+v, %v", again, err)
			}
			if len(c.If) == 0 || !bytes.Equal(c.If[0].Value, whole) {
				t.Error("the change does not hold to the bytes that were judged")
			}
		}
	})
}
