package cron_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/cron"
)

// SCH-11: with other zone data no wall-clock time of a fixed hour comes twice. Here it says that New
// York has the offset of Chicago.
func TestOtherZoneData(t *testing.T) {
	calendar := func(zone, text string) *cron.Calendar {
		c, err := (cron.Times{Zone: zone, Cron: []string{text}}).Calendar()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	nine := time.Date(2026, 7, 1, 13, 0, 0, 0, time.UTC) // 09:00 in New York, 08:00 in Chicago
	m := calendar("America/New_York", "0 9 * * *").Mark(nine)
	next, ok := calendar("America/Chicago", "0 9 * * *").Next(m)
	if want := time.Date(2026, 7, 2, 14, 0, 0, 0, time.UTC); !ok || !next.Equal(want) {
		t.Errorf("0 9 * * *: got %v, want %v", next, want)
	}
	next, ok = calendar("America/Chicago", "0 * * * *").Next(m)
	if want := nine.Add(time.Hour); !ok || !next.Equal(want) {
		t.Errorf("0 * * * *: got %v, want %v: minutes pass whatever clocks show", next, want)
	}
}

// An interval is counted from 1970, and times have bounds.
func TestIntervals(t *testing.T) {
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	c, err := (cron.Times{Every: 36 * time.Hour, Offset: 90 * time.Minute, From: at("1970-01-03T00:00:00Z"), Until: at("1970-01-06T01:30:00Z")}).Calendar()
	if err != nil {
		t.Fatal(err)
	}
	var m cron.Mark // from the beginning
	for _, want := range []string{"1970-01-04T01:30:00Z", "1970-01-05T13:30:00Z"} {
		next, ok := c.Next(m)
		if !ok || !next.Equal(at(want)) {
			t.Errorf("got %v (%t), want %s", next, ok, want)
		}
		m = c.Mark(next)
	}
	if next, ok := c.Next(m); ok {
		t.Errorf("behind Until there is %v", next)
	}
	all, err := (cron.Times{Every: 36 * time.Hour}).Calendar()
	if err != nil {
		t.Fatal(err)
	}
	if next, ok := all.Next(cron.Mark{}); !ok || next.Unix() != 0 {
		t.Errorf("the first time there is: got %v, want 1970", next)
	}
	if next, ok := all.Next(cron.Mark{At: at("2199-12-31T23:00:00Z")}); ok {
		t.Errorf("after the last time there is %v", next)
	}
}

// A zone that the machine does not have can be told from a mistake.
func TestUnknownZone(t *testing.T) {
	_, err := (cron.Times{Cron: []string{"@daily"}, Zone: "Europe/Atlantis"}).Calendar()
	if !errors.Is(err, cron.ErrZone) {
		t.Errorf("got %v, want ErrZone", err)
	}
	if _, err := (cron.Times{Cron: []string{"@never"}, Zone: "Europe/Berlin"}).Calendar(); err == nil || errors.Is(err, cron.ErrZone) {
		t.Errorf("got %v, want another error", err)
	}
}
