package idempotency_test

import (
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weft-go/weft/idempotency"
)

// FEN-37: versions that are integers are compared as numbers, of any size.
func TestCompareInt(t *testing.T) {
	long := strings.Repeat("9", 254)
	inOrder(t, idempotency.CompareInt, [][]string{
		{"-" + long},
		{"-18446744073709551617", "-0018446744073709551617"},
		{"-10"},
		{"-9", "-09"},
		{"0", "-0", "+0", "000"},
		{"2", "+2", "02"},
		{"08"},
		{"10", "0010"},
		{"9007199254740992"},
		{"9007199254740993"},
		{"18446744073709551616"},
		{"18446744073709551617"},
		{long, "0" + long, "+" + long},
	})
	refuses(t, idempotency.CompareInt, "1",
		"", " ", "-", "+", "--1", "+-1", "1-", "1 ", " 1", "1_0", "0x1", "1.0", "1e3", "1/2", "a", "٣", "1\x00", "\xff", "NaN", "Inf",
		strings.Repeat("0", 255)+"1")
}

// FEN-36: versions that are times are compared as instants, to the last digit.
func TestCompareTime(t *testing.T) {
	inOrder(t, idempotency.CompareTime, [][]string{
		{"-99999999999999999999"},
		{"0000-01-01T00:00:00Z"},
		{"1969-12-31T23:59:59.5Z", "-0.5", "-000.50"},
		{"1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000-00:00", "0", "-0", "+0.0", "1970-01-01T01:00:00+01:00", "1969-12-31T00:01:00-23:59"},
		{"8", "08"},
		{"10", "010", "10.0"},
		{"1772267400", "2026-02-28T08:30:00Z", "2026-02-28T08:30:00z", "2026-02-28t08:30:00Z", "2026-02-28T09:30:00+01:00", "2026-02-28T03:00:00-05:30"},
		{"2026-02-28T08:30:00.0000000001Z", "1772267400.0000000001"},
		{"2026-02-28T08:30:00.0000000002Z"},
		{"1772267400.25", "2026-02-28T08:30:00.25Z", "2026-02-28T08:30:00.250000000000Z"},
		{"1772267400.5"},
		{"2026-02-28T08:30:01Z"},
		{"1772267410"},
		{"9999-12-31T23:59:59Z"},
		{strings.Repeat("9", 255)},
	})
	refuses(t, idempotency.CompareTime, "1",
		"", " ", "now", "1e9", "0x1", "1/2", "1.", ".5", "1_0", "-", "1,5", "Inf", "NaN", "\xff", "1\x00", "1\n",
		"2026-02-28", "2026-02-28T08:30:00", "2026-02-28 08:30:00Z", "2026-02-28T8:30:00Z", "2026-02-28T08:30Z", "2026-02-28T08:30:00,5Z",
		"2026-02-28T08:30:00.Z", "2026-02-29T08:30:00Z", "2026-13-01T00:00:00Z", "2026-02-28T24:00:00Z", "2026-02-28T23:59:60Z",
		"2026-02-28T08:30:00+24:00", "2026-02-28T08:30:00+01:60", "2026-02-28T08:30:00+0100", "20026-02-28T08:30:00Z", "2026-02-28T08:30:00Z\n",
		"2026-02-28T08:30:00."+strings.Repeat("0", 255)+"Z")
}

// inOrder checks each pair of ranks: those of one rank are equal, and ranks rise.
func inOrder(t *testing.T, compare func(a, b string) (int, error), ranks [][]string) {
	t.Helper()
	for i, as := range ranks {
		for j, bs := range ranks {
			want := 0
			switch {
			case i < j:
				want = -1
			case i > j:
				want = 1
			}
			for _, a := range as {
				for _, b := range bs {
					if got, err := compare(a, b); got != want || err != nil {
						t.Errorf("%q with %q: %d, %v; want %d", a, b, got, err, want)
					}
				}
			}
		}
	}
}

// refuses checks that each of bad is refused on either side.
func refuses(t *testing.T, compare func(a, b string) (int, error), good string, bad ...string) {
	t.Helper()
	for _, s := range bad {
		for _, pair := range [][2]string{{s, good}, {good, s}, {s, s}} {
			if n, err := compare(pair[0], pair[1]); n != 0 || !errors.Is(err, idempotency.ErrInvalid) {
				t.Errorf("%q with %q: %d, %v; want 0 and ErrInvalid", pair[0], pair[1], n, err)
			}
		}
	}
}

// FEN-37: integers compare as math/big has them.
func TestCompareIntAgreesWithBig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		digits := rapid.StringMatching(`[+-]?[0-9]{1,254}`)
		a, b := digits.Draw(t, "a"), digits.Draw(t, "b")
		x, _ := new(big.Int).SetString(a, 10)
		y, _ := new(big.Int).SetString(b, 10)
		if got, err := idempotency.CompareInt(a, b); got != x.Cmp(y) || err != nil {
			t.Fatalf("%d, %v; want %d", got, err, x.Cmp(y))
		}
	})
}

// FEN-36: times compare as package time has them, in whichever form and zone they are written.
func TestCompareTimeAgreesWithTime(t *testing.T) {
	times := rapid.Custom(func(t *rapid.T) time.Time {
		s := rapid.Int64Range(-62_167_132_800, 253_402_214_399).Draw(t, "seconds") // a day within the years 0 and 9999
		n := rapid.SampledFrom([]int64{0, 1, 500_000_000, 999_999_999}).Draw(t, "nanoseconds")
		minutes := rapid.IntRange(-1439, 1439).Draw(t, "zone")
		return time.Unix(s, n).In(time.FixedZone("", minutes*60))
	})
	text := func(t *rapid.T, at time.Time) string {
		if rapid.Bool().Draw(t, "Unix") {
			return new(big.Rat).Add(new(big.Rat).SetInt64(at.Unix()), big.NewRat(int64(at.Nanosecond()), 1e9)).FloatString(9)
		}
		return at.Format(time.RFC3339Nano)
	}
	rapid.Check(t, func(t *rapid.T) {
		x, y := times.Draw(t, "x"), times.Draw(t, "y")
		if rapid.Bool().Draw(t, "the same") {
			y = x
		}
		a, b := text(t, x), text(t, y)
		if got, err := idempotency.CompareTime(a, b); got != x.Compare(y) || err != nil {
			t.Fatalf("%q with %q: %d, %v; want %d", a, b, got, err, x.Compare(y))
		}
	})
}
