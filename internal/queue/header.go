package queue

import "strings"

// hopByHop are the names of headers that concern a connection or the form of a body, and no message.
var hopByHop = map[string]bool{
	"connection": true, "content-length": true, "expect": true, "host": true, "keep-alive": true, "proxy-connection": true,
	"te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
}

// carried reports whether a consumer can post a message with a header over HTTP. The characters of a value may be those of
// Latin-1.
func carried(name, value string) bool {
	const token = "!#$%&'*+-.^_`|~" // beside letters and digits, by RFC 9110
	for _, r := range name {
		if (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune(token, r) {
			return false
		}
	}
	for _, r := range value {
		if r < ' ' && r != '\t' || r > '~' && r < 0x80 || r > 0xff {
			return false
		}
	}
	return name != "" && !hopByHop[strings.ToLower(name)]
}
