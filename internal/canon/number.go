package canon

import (
	"bytes"
	"math"
	"strconv"
)

const (
	// maxExponent is the maximum of |e| if a number is written as d.ddd × 10^e.
	maxExponent = 9999
	// maxPlain is the number of digits up to which a number is written without an
	// exponent; minPlain is the position of its decimal point. They are those of RFC 8785.
	maxPlain, minPlain = 21, -5
)

// appendNumber appends the canonical spelling of a JSON number to dst: its exact value in
// the layout of RFC 8785. It returns false if the exponent is too large.
func appendNumber(dst, number []byte) ([]byte, bool) {
	if len(number) <= maxPlain && isInteger(number) {
		return append(dst, number...), true
	}
	negative := number[0] == '-'
	if negative {
		number = number[1:]
	}
	var exponent []byte
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		number, exponent = number[:i], number[i+1:]
	}
	whole, fraction, _ := bytes.Cut(number, []byte("."))
	var short [64]byte
	digits := append(append(short[:0], whole...), fraction...)
	significant := bytes.TrimLeft(digits, "0")
	if len(significant) == 0 {
		return append(dst, '0'), true
	}
	// The number is 0.significant × 10^point.
	point := len(whole) - (len(digits) - len(significant)) + parseExponent(exponent)
	significant = bytes.TrimRight(significant, "0")
	if point-1 > maxExponent || point-1 < -maxExponent {
		return dst, false
	}
	if negative {
		dst = append(dst, '-')
	}
	return appendDecimal(dst, significant, point), true
}

// isInteger reports whether a number has only digits, and perhaps a sign before them. Then
// it is canonical as it is, except for -0 and for very long ones.
func isInteger(number []byte) bool {
	for i, c := range number {
		if (c < '0' || c > '9') && (i > 0 || c != '-') {
			return false
		}
	}
	return len(number) != 2 || number[0] != '-' || number[1] != '0'
}

// parseExponent returns what follows the e, 0 for nothing. It is at most so large that no
// number of digits makes up for it: a document has less than 2 GiB.
func parseExponent(s []byte) int {
	const most = math.MaxInt32
	if len(s) == 0 {
		return 0
	}
	n, err := strconv.Atoi(string(s))
	if err != nil && s[0] == '-' {
		return -most
	}
	if err != nil {
		return most
	}
	return min(max(n, -most), most)
}

// appendDecimal appends 0.digits × 10^point. digits has no zeros at its ends.
func appendDecimal(dst, digits []byte, point int) []byte {
	switch {
	case point > maxPlain || point < minPlain:
		dst = append(dst, digits[0])
		if len(digits) > 1 {
			dst = append(append(dst, '.'), digits[1:]...)
		}
		dst = append(dst, 'e')
		if point > 0 {
			dst = append(dst, '+')
		}
		return strconv.AppendInt(dst, int64(point-1), 10)
	case point >= len(digits):
		return appendZeros(append(dst, digits...), point-len(digits))
	case point > 0:
		return append(append(append(dst, digits[:point]...), '.'), digits[point:]...)
	default:
		return append(appendZeros(append(dst, "0."...), -point), digits...)
	}
}

func appendZeros(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}
