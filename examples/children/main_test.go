package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-go/weft/internal/exampletest"
)

// TestChildren kills the program while a tour's bookings are made, and again while
// those of the other are waiting to be cancelled.
func TestChildren(t *testing.T) {
	program, db := exampletest.Build(t), filepath.Join(t.TempDir(), "children.db")
	start := func() *exampletest.Play { return exampletest.Start(t, program, "-db", db) }

	p := start()
	p.UntilNumber()
	p.Until("lisbon/flight, asking")
	p.Kill()

	p = start()
	p.Until("lisbon: a booked flight, a booked hotel, no guide")
	p.Until("postcards: a booked postcards")
	p.Until("narvik/hotel, asking")
	late := p.Kill()

	last := start().End()
	told := late + last
	for again := 0; again < 3 && !strings.Contains(last, "lisbon/upgrade is cancelled"); again++ {
		t.Log("again: the second process was killed before the upgrade had ended, as on a busy machine")
		last = start().End()
		told += last
	}
	if strings.Contains(told, "lisbon/hotel, asking") {
		t.Error("the hotel of a tour that had ended was asked again")
	}
	if !strings.Contains(told, "narvik/hotel, giving back: hotel\n") {
		t.Error("the hotel of a tour that was called off was not given back")
	}
	for _, want := range []string{
		"lisbon/guide is failed",
		"lisbon/upgrade is cancelled",
		"lisbon/invoice is completed",
		"lisbon/postcards is completed",
		"narvik is cancelled: it rains\n",
		"narvik/hotel is cancelled: cancellation of parent \"narvik\"\n",
	} {
		if !strings.Contains(last, want) {
			t.Errorf("the last process did not print %q", want)
		}
	}
}
