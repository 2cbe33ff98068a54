// Package jsontext recognizes JSON that needs no parser.
package jsontext

// PlainString reports whether data is a JSON string without escapes, so that its value is
// the bytes between the quotes.
func PlainString(data []byte) bool {
	if len(data) < 2 || data[0] != '"' || data[len(data)-1] != '"' {
		return false
	}
	for _, c := range data[1 : len(data)-1] {
		if c < ' ' || c == '"' || c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}
