package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
)

// A Tour is a journey with all its bookings.
type Tour struct {
	Name  string
	Takes time.Duration // per booking
}

// A Booking is one part of a tour.
type Booking struct {
	What  string
	Takes time.Duration
}

// errSoldOut is a failure that a tour distinguishes from others.
var errSoldOut = errors.New("sold out")

// tour is the parent. It starts its bookings with Go, in parallel, each in the same
// commit as the checkpoint that records it.
var tour = &engine.Workflow[Tour, string]{
	Name: "tour",
	Func: func(run *engine.Run, t Tour) (string, error) {
		child := func(what string, onEnd engine.ParentEnd) *engine.Workflow[Booking, string] {
			return book.AsChild(engine.ChildOptions{ID: t.Name + "/" + what, OnParentEnd: onEnd})
		}
		flight := child("flight", engine.ParentEndCancel).Go(run, Booking{"flight", t.Takes})
		hotel := child("hotel", engine.ParentEndCancel).Go(run, Booking{"hotel", t.Takes})
		guide := child("guide", engine.ParentEndCancel).Go(run, Booking{"guide", t.Takes})

		// The tour does not need the results of these. If they have not ended when the tour ends:
		//weft:ignore W10 it is asked to stop, the default
		child("upgrade", engine.ParentEndCancel).Go(run, Booking{"upgrade", 1000 * t.Takes})
		//weft:ignore W10 it continues
		child("postcards", engine.ParentEndAbandon).Go(run, Booking{"postcards", 3 * t.Takes})
		//weft:ignore W10 the tour ends when it has
		child("invoice", engine.ParentEndAwait).Go(run, Booking{"invoice", 2 * t.Takes})

		booked, err := engine.All(run, flight, hotel)
		if err != nil {
			return "", err
		}
		guided, err := guide.Get(run)
		if errors.Is(err, errSoldOut) {
			guided, err = "no guide", nil
		}
		return fmt.Sprintf("%s, %s, %s", booked[0], booked[1], guided), err
	},
}

// book is the child. Cancellation reaches it through its parent.
var book = &engine.Workflow[Booking, string]{
	Name:   "book",
	Errors: []error{errSoldOut},
	Func: func(run *engine.Run, b Booking) (string, error) {
		if _, err := ask.Do(run, b.What); err != nil {
			return "", err
		}
		if b.What == "guide" {
			return "", errSoldOut
		}
		if err := run.Sleep(b.Takes); err != nil {
			_, undone := release.Do(run.WithoutCancel(), b.What)
			return "", errors.Join(err, undone)
		}
		return "a booked " + b.What, nil
	},
}

var (
	ask     = &activity.Activity[string, any]{Name: "ask", Run: says("asking for: ")}
	release = &activity.Activity[string, any]{Name: "release", Run: says("giving back: ")}
)

// says returns an activity's function that only prints.
func says(doing string) func(context.Context, string) (any, error) {
	return func(ctx context.Context, what string) (any, error) {
		fmt.Printf("  %s, %s%s\n", activity.InfoFrom(ctx).WorkflowID, doing, what)
		return nil, nil
	}
}
