package record

import "bytes"

// BufferCap returns how large the next buffer is in which a record will be encoded.
func BufferCap() int {
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	return b.Cap()
}
