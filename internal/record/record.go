// Package record is the encoding of everything that Weft stores. A record is an envelope
// around a body:
//
//	'W' 'f' | version | CRC-32C of key, version and body, big-endian | body
//
// The body is deterministic CBOR (RFC 8949 §4.2.1), so that equal records are equal bytes.
// The checksum covers the key, so a record found under another key is detected as damage.
package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-go/weft/storage"
)

const header = 7

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	encoder    = must(cbor.CoreDetEncOptions().UserBufferEncMode())
	decoder    = must(cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, MaxArrayElements: 1 << 24, MaxMapPairs: 1 << 24}.DecMode())
	strict     = must(cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, MaxArrayElements: 1 << 24, MaxMapPairs: 1 << 24, ExtraReturnErrors: cbor.ExtraDecErrorUnknownField}.DecMode())
)

// maxReused is how large a buffer is at most that is kept for other records.
const maxReused = 1 << 20

// buffers are for encoding records until their size is known.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options are constant
	}
	return v
}

// Damaged reports whether an error is about one record, which is damaged or was written by
// a newer release, and not about the store.
func Damaged(err error) bool {
	return errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrFutureFormat)
}

// Seal encodes v, a struct with integer keys, for storage under key. If it replaces a record,
// keep is what Open returned for that record; otherwise keep is nil.
func Seal(key []byte, version byte, v any, keep Unknown) ([]byte, error) {
	buf := buffers.Get().(*bytes.Buffer)
	defer func() {
		if buf.Cap() <= maxReused {
			buffers.Put(buf)
		}
	}()
	buf.Reset()
	err := encoder.MarshalToBuffer(v, buf)
	body := buf.Bytes()
	if err == nil && len(keep) > 0 {
		body, err = merge(body, keep)
	}
	if err != nil {
		return nil, fmt.Errorf("record: encode %q: %w", key, err)
	}
	data := make([]byte, header+len(body))
	copy(data[header:], body)
	data[0], data[1], data[2] = 'W', 'f', version
	binary.BigEndian.PutUint32(data[3:], checksum(key, data[2:3], data[header:]))
	return data, nil
}

// Open decodes into v what Seal encoded for key. It returns an error that wraps
// storage.ErrCorrupt if data is not what was sealed for this key, and one that wraps
// storage.ErrFutureFormat if its version is higher than version.
func Open(key, data []byte, version byte, v any) (Unknown, error) {
	if len(data) < header || data[0] != 'W' || data[1] != 'f' {
		return nil, fmt.Errorf("%w: record %q has no envelope", storage.ErrCorrupt, key)
	}
	body := data[header:]
	if binary.BigEndian.Uint32(data[3:]) != checksum(key, data[2:3], body) {
		return nil, fmt.Errorf("%w: record %q has a wrong checksum", storage.ErrCorrupt, key)
	}
	if data[2] > version {
		return nil, fmt.Errorf("%w: record %q has version %d, this release knows %d", storage.ErrFutureFormat, key, data[2], version)
	}
	err := strict.Unmarshal(body, v)
	var unknown *cbor.UnknownFieldError
	var rest Unknown
	if errors.As(err, &unknown) {
		if err = decoder.Unmarshal(body, v); err == nil {
			rest, err = split(body, reflect.TypeOf(v).Elem())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: record %q: %w", storage.ErrCorrupt, key, err)
	}
	return rest, nil
}

func checksum(key, version, body []byte) uint32 {
	sum := crc32.Update(0, castagnoli, key)
	sum = crc32.Update(sum, castagnoli, version)
	return crc32.Update(sum, castagnoli, body)
}
