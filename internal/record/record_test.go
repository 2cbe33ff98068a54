package record_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// An order is a record as this release knows it; a laterOrder is one of a later release.
type order struct {
	ID    string            `cbor:"1,keyasint"`
	Cents int64             `cbor:"2,keyasint,omitempty"`
	Lines []line            `cbor:"3,keyasint,omitempty"`
	Notes map[string]string `cbor:"4,keyasint,omitempty"`
	Raw   []byte            `cbor:"5,keyasint,omitempty"`
}

type line struct {
	SKU string `cbor:"1,keyasint"`
	N   int    `cbor:"2,keyasint"`
}

type laterOrder struct {
	ID      string   `cbor:"1,keyasint"`
	Cents   int64    `cbor:"2,keyasint,omitempty"`
	Voucher string   `cbor:"40,keyasint,omitempty"`
	Tags    []string `cbor:"41,keyasint,omitempty"`
}

var key = []byte("wf:order")

func seal(t testing.TB, v any, keep record.Unknown) []byte {
	t.Helper()
	data, err := record.Seal(key, 1, v, keep)
	if err != nil {
		t.Fatalf("Seal(%+v): %v", v, err)
	}
	return data
}

func TestRoundTripAndOneEncoding(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := order{
			ID:    rapid.String().Draw(rt, "id"),
			Cents: rapid.Int64().Draw(rt, "cents"),
			Notes: rapid.MapOf(rapid.String(), rapid.String()).Draw(rt, "notes"),
			Raw:   rapid.SliceOf(rapid.Byte()).Draw(rt, "raw"),
		}
		data := seal(t, &in, nil)
		var out order
		unknown, err := record.Open(key, data, 1, &out)
		if err != nil || len(unknown) > 0 {
			t.Fatalf("Open: %v, %v", unknown, err)
		}
		if again := seal(t, &out, nil); !bytes.Equal(again, data) {
			t.Errorf("sealed again: %x, want %x", again, data)
		}
		if out.ID != in.ID || out.Cents != in.Cents || !bytes.Equal(out.Raw, in.Raw) || len(out.Notes) != len(in.Notes) {
			t.Errorf("got %+v, want %+v", out, in)
		}
	})
}

// FMT-9, FMT-11, FMT-12: fields that a later release added survive reading and writing by
// this release.
func TestUnknownFieldsSurvive(t *testing.T) {
	theirs := laterOrder{ID: "o", Cents: 1, Voucher: "spring", Tags: []string{"a", "b"}}
	var mine order
	unknown, err := record.Open(key, seal(t, &theirs, nil), 1, &mine)
	if err != nil {
		t.Fatal(err)
	}
	if mine.ID != "o" || mine.Cents != 1 || len(unknown) != 2 {
		t.Fatalf("got %+v and unknown fields %v", mine, unknown)
	}
	mine.Cents = 2
	var back laterOrder
	if _, err := record.Open(key, seal(t, &mine, unknown), 1, &back); err != nil {
		t.Fatal(err)
	}
	if back.Voucher != "spring" || len(back.Tags) != 2 || back.Cents != 2 {
		t.Errorf("after a write by this release: %+v", back)
	}
	theirs.Cents = 2
	if want := seal(t, &theirs, nil); !bytes.Equal(seal(t, &mine, unknown), want) {
		t.Errorf("not the bytes that the later release makes of the same record")
	}
}

// FMT-26.
func TestHigherVersionIsRefused(t *testing.T) {
	data, err := record.Seal(key, 2, &order{ID: "o"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(data)
	got := order{ID: "untouched"}
	_, err = record.Open(key, data, 1, &got)
	if !errors.Is(err, storage.ErrFutureFormat) || !strings.Contains(err.Error(), string(key)) {
		t.Errorf("Open of version 2 = %v, want ErrFutureFormat naming %q", err, key)
	}
	if got.ID != "untouched" || !bytes.Equal(data, before) {
		t.Errorf("a refused record was touched: %+v", got)
	}
}

// F9: a flipped bit is detected by the checksum only; the checksum detects each.
func TestEveryBitFlipIsSeen(t *testing.T) {
	data := seal(t, &order{ID: "order-42", Cents: 4900, Lines: []line{{"apple", 3}}, Raw: []byte{0, 1, 2}}, nil)
	for bit := range len(data) * 8 {
		bad := bytes.Clone(data)
		bad[bit/8] ^= 1 << (bit % 8)
		var o order
		if _, err := record.Open(key, bad, 1, &o); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), string(key)) {
			t.Errorf("bit %d flipped: %v, want ErrCorrupt naming %q", bit, err, key)
		}
	}
	for n := range len(data) {
		if _, err := record.Open(key, data[:n], 1, new(order)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v, want ErrCorrupt", n, err)
		}
	}
	if _, err := record.Open([]byte("wf:other"), data, 1, new(order)); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), "wf:other") {
		t.Errorf("under another key: %v, want ErrCorrupt naming it", err)
	}
}

func TestUnencodableIsAnError(t *testing.T) {
	if _, err := record.Seal(key, 1, &struct {
		C chan int `cbor:"1,keyasint"`
	}{make(chan int)}, nil); err == nil || !strings.Contains(err.Error(), string(key)) {
		t.Errorf("Seal of a channel = %v, want an error naming %q", err, key)
	}
}

// FuzzOpen: any bytes under a key, even with a correct checksum, are either a record or an
// error.
func FuzzOpen(f *testing.F) {
	for _, v := range []any{&order{ID: "o", Cents: 1, Lines: []line{{"a", 1}}}, &laterOrder{ID: "o", Voucher: "v"}} {
		f.Add(seal(f, v, nil))
	}
	f.Add([]byte("Wf"))
	f.Fuzz(func(t *testing.T, data []byte) {
		record.Open(key, data, 1, new(order))
		body := data[min(len(data), 7):]
		whole := append([]byte{'W', 'f', 1, 0, 0, 0, 0}, body...)
		sum := crc32.Update(0, crc32.MakeTable(crc32.Castagnoli), append(append(bytes.Clone(key), 1), body...))
		binary.BigEndian.PutUint32(whole[3:], sum)
		var o order
		unknown, err := record.Open(key, whole, 1, &o)
		if err != nil {
			if !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("Open = %v, want ErrCorrupt", err)
			}
			return
		}
		if _, err := record.Seal(key, 1, &o, unknown); err != nil {
			t.Errorf("what was opened cannot be sealed: %v", err)
		}
	})
}

// The space in which a large record was encoded is not kept for small ones.
func TestLargeBuffersAreNotKept(t *testing.T) {
	type large struct {
		Data []byte `cbor:"1,keyasint"`
	}
	for range 10 { // a pool may forget what it was given
		if _, err := record.Seal([]byte("key"), 1, &large{make([]byte, 16<<20)}, nil); err != nil {
			t.Fatal(err)
		}
		if n := record.BufferCap(); n > 1<<20 {
			t.Fatalf("a buffer of %d bytes is kept", n)
		}
	}
}
