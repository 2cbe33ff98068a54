package weft

import (
	"encoding/json"
)

// A PageRequest says which page of a list is wanted.
type PageRequest struct {
	Limit     int    // the most items of the page, 1 to 1,000; 0 means 100
	Cursor    string // Page.Next of the page before, for the same filter and order; "" begins
	Ascending bool   // the oldest first; otherwise the newest
	NoData    bool   // events come without their Result and Codec; other lists have no payloads
}

// A Page is a part of a list.
type Page[T any] struct {
	Data []T

	// Next is the Cursor of the page that follows: the place behind the last item. It is set
	// also if nothing follows. On an empty page it is the Cursor of the request, unless the call
	// has passed over what the filter does not select. It does not expire, needs no escaping in a
	// URL, and is neither encrypted nor signed.
	Next string

	// HasMore: there may be more after this page. A page may have fewer items than the
	// Limit, or none, and more may follow all the same.
	HasMore bool
}

// MarshalJSON encodes p as an object with the fields data, cursor, hasMore and tail. The
// cursor is Next, or null if nothing follows. tail is Next in any case.
func (p Page[T]) MarshalJSON() ([]byte, error) {
	o := struct {
		Data    []T     `json:"data"`
		Cursor  *string `json:"cursor"`
		HasMore bool    `json:"hasMore"`
		Tail    string  `json:"tail"`
	}{Data: p.Data, HasMore: p.HasMore, Tail: p.Next}
	if o.Data == nil {
		o.Data = []T{}
	}
	if p.HasMore {
		o.Cursor = &p.Next
	}
	return json.Marshal(o)
}
