package idempotency

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-go/weft/storage"
)

// FuzzEntry: any bytes under the key of an entry, even with a right checksum, are an entry of this key or an
// error that says that they are damaged. What is an entry can be decided on, and stored again.
func FuzzEntry(f *testing.F) {
	k := Key{"shop:1", "refund-request", "req%1", "", "", "refund"}
	hash := k.Hash()
	at := k.stored(hash)
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
		if e, err := open(k, hash, data); err == nil && e.key() != k {
			t.Errorf("got the entry of %+v", e.key())
		}
		whole := sealedBody(at, data[min(len(data), 7):])
		e, err := open(k, hash, whole)
		found, err2 := openAt(at, hash, whole)
		if (err == nil) != (err2 == nil) {
			t.Errorf("open says %v, openAt says %v", err, err2)
		}
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("got %v, want ErrCorrupt", err)
			}
			return
		}
		if e.key() != k || found.key() != k {
			t.Fatalf("got the entry of %+v", e.key())
		}
		switch e.State {
		case StateInProgress, StateReleased, StateSealed, StateFailed, StateIndeterminate:
		default:
			t.Errorf("got an entry whose state is %q: nothing could be decided on it", e.State)
		}
		for _, s := range []situation{{entry: e}, {entry: e, same: true}, {entry: e, same: true, policy: TakeOver, holder: settled}} {
			if got := decide(s); got < stepClaim || got > stepEvict {
				t.Errorf("%v: step %d", s, got)
			}
		}
		_ = e.info(hash)
		now := time.Unix(1, 0)
		follow := []*entry{e.next(now)}
		if e.State == StateInProgress || e.State == StateIndeterminate {
			follow = append(follow, e.released(now), e.sealed(now, "id", result{}), e.failed(now, "no", ""), e.indeterminate(now, "why"))
		}
		for _, next := range follow {
			c, err := changing(k, hash, e, next)
			if err != nil {
				t.Fatalf("what was opened cannot be sealed: %v", err)
			}
			if bytes.Equal(next.raw, e.raw) {
				t.Error("two writes are of equal bytes")
			}
			again, err := open(k, hash, next.raw)
			if err != nil || again.State != next.State || again.Updated <= e.Updated && e.Updated < 1<<62 {
				t.Errorf("got %+v, %v", again, err)
			}
			if len(c.If) == 0 || !bytes.Equal(c.If[0].Value, whole) {
				t.Error("the change does not hold to the bytes that were judged")
			}
		}
	})
}

// sealedBody returns body in an envelope with a right checksum.
func sealedBody(key, body []byte) []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	whole := append([]byte{'W', 'f', version, 0, 0, 0, 0}, body...)
	binary.BigEndian.PutUint32(whole[3:], crc32.Update(crc32.Update(crc32.Update(0, table, key), table, []byte{version}), table, body))
	return whole
}
