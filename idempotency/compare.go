package idempotency

import (
	"cmp"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"time"
)

// maxVersion is the most bytes of a version that is compared, as of a version of an Order.
const maxVersion = 255

// CompareInt compares decimal integers of any size, for Order.Compare. It returns -1 if a is less than b, 0 if they are
// equal, and 1 if a is greater. A sign and leading zeros are allowed; spaces, fractions and exponents are not. Anything
// else, and what is longer than 255 bytes, is an error that wraps ErrInvalid.
func CompareInt(a, b string) (int, error) { return compare(a, b, parseInt) }

// CompareTime compares times, for Order.Compare. It returns -1 if a is before b, 0 if they are the same instant, and 1 if a
// is after b. A time is either of RFC 3339, such as 2026-02-28T09:30:00.25+01:00, or a decimal number of seconds since 1970,
// such as 1772267400.25, and the two may be compared with each other. Fractions are compared exactly, to their last digit.
// Times without a zone, leap seconds (23:59:60), and what is longer than 255 bytes are errors that wrap ErrInvalid.
//
// Two events may happen in one tick of a clock, so set Order.Ties.
func CompareTime(a, b string) (int, error) { return compare(a, b, parseTime) }

func compare[N interface{ Cmp(N) int }](a, b string, parse func(string) (N, bool)) (int, error) {
	var parsed [2]N
	for i, s := range []string{a, b} {
		if len(s) > maxVersion {
			return 0, fmt.Errorf("%w: a version has %d bytes, at most %d are allowed", ErrInvalid, len(s), maxVersion)
		}
		n, ok := parse(s)
		if !ok {
			return 0, fmt.Errorf("%w: the version %q cannot be compared", ErrInvalid, s)
		}
		parsed[i] = n
	}
	return parsed[0].Cmp(parsed[1]), nil
}

func parseInt(s string) (*big.Int, bool) { return new(big.Int).SetString(s, 10) }

var (
	seconds = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]+)?$`)

	// instant has the parts of RFC 3339, section 5.6. time.Parse allows more.
	instant = regexp.MustCompile(`^([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`)
)

// parseTime returns seconds since 1970.
func parseTime(s string) (*big.Rat, bool) {
	if seconds.MatchString(s) {
		return new(big.Rat).SetString(s)
	}
	parts := instant.FindStringSubmatch(strings.ToUpper(s))
	if parts == nil {
		return nil, false
	}
	t, err := time.Parse(time.RFC3339, parts[1]+parts[3]) // the fraction could be finer than a time.Time
	if err != nil {
		return nil, false
	}
	fraction, _ := new(big.Rat).SetString(cmp.Or(parts[2], "0"))
	return fraction.Add(fraction, new(big.Rat).SetInt64(t.Unix())), true
}
