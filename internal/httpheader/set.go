package httpheader

import "net/http"

// Set sets header fields to values, which follow their names in canonical form, with one allocation.
func Set(h http.Header, fields ...string) {
	values := make([]string, len(fields)/2)
	for i := range values {
		values[i] = fields[2*i+1]
		h[fields[2*i]] = values[i : i+1 : i+1]
	}
}
