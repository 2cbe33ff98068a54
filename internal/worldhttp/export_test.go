package worldhttp

import "time"

var ToJSON = toJSON

// SetWritePatience changes within what time a client must take an answer, until the function that it returns is called.
func SetWritePatience(d time.Duration) (restore func()) {
	before := writePatience
	writePatience = d
	return func() { writePatience = before }
}
