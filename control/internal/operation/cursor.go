package operation

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/record"
)

// SealCursor encodes a place, a struct with integer keys, as a cursor of one list.
func SealCursor(list string, at any) (string, error) {
	raw, err := record.Seal([]byte(list), 1, at, nil)
	return base64.RawURLEncoding.EncodeToString(raw), err
}

// OpenCursor decodes into at what SealCursor encoded for the list. It is false for anything else.
func OpenCursor(list, cursor string, at any) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return false
	}
	_, err = record.Open([]byte(list), raw, 1, at)
	return err == nil
}

// Within calls read with smaller and smaller limits until its page has at most MaxPageBytes or one
// item.
func Within[T any](limit int, read func(limit int) (weft.Page[T], error)) (weft.Page[T], error) {
	for {
		page, err := read(limit)
		if err != nil || len(page.Data) <= 1 {
			return page, err
		}
		raw, err := json.Marshal(page.Data)
		if err != nil || len(raw) <= MaxPageBytes {
			return page, err
		}
		limit = max(1, len(page.Data)/2)
	}
}

// TimeIn reads a time of RFC 3339.
func TimeIn(s *string) (time.Time, bool) {
	if s == nil {
		return time.Time{}, true
	}
	t, err := time.Parse(time.RFC3339, *s)
	return t, err == nil
}
