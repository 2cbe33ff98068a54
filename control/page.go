package control

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/record"
)

// Sizes of a page.
const (
	usualPage = 100
	mostPage  = 1000
	pageBytes = 4 << 20 // of the items' JSON; a page with one item may be larger
)

// pageParams are the parameters of every page.
type pageParams struct {
	Limit  *int    `json:"limit" in:"query"`
	Cursor *string `json:"cursor" in:"query"`
	Order  *string `json:"sortOrder" in:"query"`
}

func (p *pageParams) checkPage() (issues []issue) {
	if p.Limit != nil && (*p.Limit < 1 || *p.Limit > mostPage) {
		issues = append(issues, issue{"/limit", fmt.Sprintf("must be 1 to %d", mostPage)})
	}
	if p.Order != nil && *p.Order != "asc" && *p.Order != "desc" {
		issues = append(issues, issue{"/sortOrder", "must be asc or desc"})
	}
	return issues
}

func (p *pageParams) limit() int {
	if p.Limit == nil {
		return usualPage
	}
	return *p.Limit
}

func (p *pageParams) cursor() string {
	if p.Cursor == nil {
		return ""
	}
	return *p.Cursor
}

// ascending says whether the oldest come first. By default the newest do.
func (p *pageParams) ascending() bool { return p.Order != nil && *p.Order == "asc" }

// badCursor is the problem of a cursor that is not of this list.
func badCursor() error { return invalid(issue{"/cursor", "is not of a page of this list"}) }

// sealCursor encodes a place, a struct with integer keys, as a cursor of one list.
func sealCursor(list string, at any) (string, error) {
	raw, err := record.Seal([]byte(list), 1, at, nil)
	return base64.RawURLEncoding.EncodeToString(raw), err
}

// openCursor decodes into at what sealCursor encoded for the list. It is false for anything else.
func openCursor(list, cursor string, at any) bool {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return false
	}
	_, err = record.Open([]byte(list), raw, 1, at)
	return err == nil
}

// within calls read with smaller and smaller limits until its page has at most pageBytes or one
// item.
func within[T any](limit int, read func(limit int) (weft.Page[T], error)) (weft.Page[T], error) {
	for {
		page, err := read(limit)
		if err != nil || len(page.Data) <= 1 {
			return page, err
		}
		raw, err := json.Marshal(page.Data)
		if err != nil || len(raw) <= pageBytes {
			return page, err
		}
		limit = max(1, len(page.Data)/2)
	}
}

// timeIn reads a time of RFC 3339.
func timeIn(s *string) (time.Time, bool) {
	if s == nil {
		return time.Time{}, true
	}
	t, err := time.Parse(time.RFC3339, *s)
	return t, err == nil
}
