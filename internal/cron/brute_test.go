package cron_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/cron"
)

// zones have every kind of change of an offset that there has been since 1990: by an hour, by half
// an hour, by two, over midnight, by a day, and for good.
var zones = []string{
	"America/New_York", "Europe/Berlin", "Europe/Dublin", "Australia/Lord_Howe", "Antarctica/Troll",
	"America/Sao_Paulo", "America/Santiago", "Africa/Cairo", "America/Caracas", "Pacific/Apia",
	"Asia/Gaza", "America/St_Johns", "Africa/Casablanca", "Asia/Pyongyang", "Asia/Kathmandu",
	"Pacific/Kwajalein", "Pacific/Kiritimati", "Europe/Lisbon", "Antarctica/Casey", "Asia/Tehran",
}

// SCH-16: beside each change of an offset from 1990 to 2037, Next finds what a look at every minute
// finds, for random expressions.
func TestNextIsWhatEveryMinuteSays(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("WEFT_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("WEFT_SEED=%d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	each := 1 // expressions for each change
	if os.Getenv("WEFT_TORTURE") != "" {
		each = 40
	}
	changes := 0
	for _, name := range zones {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range changesOf(zone) {
			if each == 1 && dice.IntN(16) > 0 {
				continue
			}
			changes++
			for range each {
				compare(t, zone, change, randomExpression(dice))
			}
		}
	}
	if changes < 50 {
		t.Errorf("only %d changes were met", changes)
	}
}

// changesOf returns when the offset of a zone changes.
func changesOf(zone *time.Location) (changes []time.Time) {
	for at := time.Date(1990, 1, 1, 0, 0, 0, 0, zone); at.Year() < 2038; {
		_, end := at.ZoneBounds()
		if end.IsZero() {
			break
		}
		if _, before := at.Zone(); before != offsetAt(end) {
			changes = append(changes, end)
		}
		at = end
	}
	return changes
}

func offsetAt(t time.Time) int {
	_, offset := t.Zone()
	return offset
}

// compare compares all times from two days before a change to two days behind it.
func compare(t *testing.T, zone *time.Location, change time.Time, x expression) {
	t.Helper()
	texts := make([]string, len(x))
	for i, f := range x {
		texts[i] = f.text
	}
	text := strings.Join(texts, " ")
	c, err := (cron.Times{Zone: zone.String(), Cron: []string{text}}).Calendar()
	if err != nil {
		if strings.Contains(err.Error(), "matches no time") {
			return // such as the 31st of February
		}
		t.Fatalf("%q: %v", text, err)
	}
	from, until := change.Add(-48*time.Hour), change.Add(48*time.Hour)
	want := everyMinute(zone, from, until, x)
	var got []time.Time
	for m := c.Mark(from.Add(-1)); ; {
		next, ok := c.Next(m)
		if !ok || !next.Before(until) {
			break
		}
		got = append(got, next)
		m = c.Mark(next)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s, %q, beside %v: got\n%v, want\n%v", zone, text, change, got, want)
	}
	if last, ok := c.Last(c.Mark(from.Add(-1)), until.Add(-1)); ok != (len(want) > 0) || ok && !last.Equal(want[len(want)-1]) {
		t.Errorf("%s, %q, beside %v: the last one is %v (%t), want that of\n%v", zone, text, change, last, ok, want)
	}
	if n := c.Count(c.Mark(from.Add(-1)), until.Add(-1), 10_000); n != len(want) {
		t.Errorf("%s, %q, beside %v: counted %d, want %d", zone, text, change, n, len(want))
	}
}

// everyMinute is the definition of the times of an expression. It goes through all minutes twice: as
// they pass, and as clocks show them.
func everyMinute(zone *time.Location, from, until time.Time, x expression) (times []time.Time) {
	at := map[int64]bool{}
	if strings.ContainsAny(x[1].text, "*") {
		for t := from; t.Before(until); t = t.Add(time.Minute) {
			if x.matches(t.In(zone)) {
				at[t.Unix()] = true
			}
		}
	} else {
		// When each minute was shown first. The clocks are watched from a day before.
		shown := map[int64]int64{} // by the wall-clock time, as if it were UTC
		for t := from.Add(-30 * time.Hour); t.Before(until.Add(30 * time.Hour)); t = t.Add(time.Minute) {
			name := t.Unix() + int64(offsetAt(t.In(zone)))
			if _, before := shown[name]; !before {
				shown[name] = t.Unix()
			}
		}
		// Each minute of the calendar.
		wall := from.In(zone).Add(-24 * time.Hour)
		wall = time.Date(wall.Year(), wall.Month(), wall.Day(), 0, 0, 0, 0, time.UTC)
		for ; wall.Before(until.Add(24 * time.Hour)); wall = wall.Add(time.Minute) {
			if !x.matches(wall) {
				continue
			}
			instant, ok := shown[wall.Unix()]
			for later := wall; !ok && later.Before(wall.Add(27*time.Hour)); later = later.Add(time.Minute) {
				instant, ok = shown[later.Unix()] // the first one that is shown behind a gap
			}
			if ok && instant >= from.Unix() && instant < until.Unix() {
				at[instant] = true
			}
		}
	}
	for t := from; t.Before(until); t = t.Add(time.Minute) {
		if at[t.Unix()] {
			times = append(times, t.UTC())
		}
	}
	return times
}

// A field is a field of an expression, and what it matches.
type field struct {
	text string
	has  map[int]bool
}

// An expression is five fields: minute, hour, day of the month, month, day of the week.
type expression [5]field

func (x expression) matches(t time.Time) bool {
	day, weekday := x[2].has[t.Day()], x[4].has[int(t.Weekday())]
	either := day && weekday
	if x[2].text != "*" && x[4].text != "*" {
		either = day || weekday
	}
	return x[0].has[t.Minute()] && x[1].has[t.Hour()] && either && x[3].has[int(t.Month())]
}

func randomExpression(dice *rand.Rand) expression {
	x := expression{
		randomField(dice, 0, 59, 3), randomField(dice, 0, 23, 3),
		randomField(dice, 1, 31, 8), randomField(dice, 1, 12, 12), randomField(dice, 0, 6, 8),
	}
	return x
}

// randomField returns a field, which is * in stars of 12 cases.
func randomField(dice *rand.Rand, low, high, stars int) field {
	f := field{has: map[int]bool{}}
	add := func(text string, from, to, step int) {
		if f.text != "" {
			f.text += ","
		}
		f.text += text
		for i := from; i <= to; i += step {
			f.has[i] = true
		}
	}
	pick := func() int { return low + dice.IntN(high-low+1) }
	switch kind := dice.IntN(12); {
	case kind < stars:
		add("*", low, high, 1)
	case kind == 11:
		step := 2 + dice.IntN(5)
		add(fmt.Sprintf("*/%d", step), low, high, step)
	case kind >= 9:
		from := pick()
		to := from + dice.IntN(high-from+1)
		add(fmt.Sprintf("%d-%d", from, to), from, to, 1)
	default:
		for range 1 + dice.IntN(3) {
			n := pick()
			add(strconv.Itoa(n), n, n, 1)
		}
		if low == 0 && high == 23 && dice.IntN(2) == 0 { // where most changes are
			n := dice.IntN(4)
			add(strconv.Itoa(n), n, n, 1)
		}
	}
	return f
}
