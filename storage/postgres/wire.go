package postgres

import "encoding/binary"

// Arrays are written in PostgreSQL's binary format: number of dimensions, whether there may
// be a NULL, element type, length, first index, and then each element after its length.

const byteaOID = 17

func beginArray(dst []byte, n int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, 1)
	dst = binary.BigEndian.AppendUint32(dst, 1)
	dst = binary.BigEndian.AppendUint32(dst, byteaOID)
	dst = binary.BigEndian.AppendUint32(dst, uint32(n))
	return binary.BigEndian.AppendUint32(dst, 1)
}

func appendBytes(dst, v []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(v)))
	return append(dst, v...)
}

func appendNull(dst []byte) []byte { return binary.BigEndian.AppendUint32(dst, ^uint32(0)) }
