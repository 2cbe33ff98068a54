// Package ignore suppresses findings.
package ignore

import (
	"time"

	"github.com/weft-go/weft/engine"
)

func onLine(run *engine.Run) time.Time {
	return time.Now() //weft:ignore W1 for a log only
}

func above(run *engine.Run) time.Time {
	//weft:ignore W1 for a log only
	return time.Now()
}

func aboveInComment(run *engine.Run) time.Time {
	// It is logged, and nothing else.
	//weft:ignore W1 for a log only
	// More words.
	return time.Now()
}

func several(run *engine.Run, m map[string]int) (string, time.Time) {
	//weft:ignore W1,W4 a test of both
	for k := range m {
		return k, run.Now()
	}
	return "", time.Now() // want `time.Now`
}

func anotherCode(run *engine.Run) time.Time {
	return time.Now() //weft:ignore W2 for a log only // want `time.Now`
}

// A comment after code is for its line alone.
func anotherLine(run *engine.Run) (a, b time.Time) {
	a = time.Now() //weft:ignore W1 for a log only
	b = time.Now() // want `time.Now`
	return a, b
}

func withoutReason(run *engine.Run) time.Time {
	return time.Now() //weft:ignore W1 // want `a weft:ignore needs a code and a reason, such as: //weft:ignore W4 the order does not matter here` `time.Now`
}

func withoutCode(run *engine.Run) time.Time {
	return time.Now() //weft:ignore // want `needs a code and a reason` `time.Now`
}

func reasonAsCode(run *engine.Run) time.Time {
	return time.Now() //weft:ignore for a log only // want `needs a code and a reason` `time.Now`
}

func unknownCode(run *engine.Run) time.Time {
	return time.Now() //weft:ignore W12 for a log only // want `needs a code and a reason` `time.Now`
}

// It stops the way through a call, and no other.
func oneWay(run *engine.Run) time.Time {
	return helper() //weft:ignore W1 for a log only
}

func helper() time.Time { return time.Now() }

func otherWay(run *engine.Run) time.Time { return second() }

func second() time.Time {
	return time.Now() // want `time.Now in workflow code \(otherWay calls second\)`
}

func secondIgnored(run *engine.Run) time.Time {
	return second() //weft:ignore W1 for a log only
}

type kept struct {
	run *engine.Run //weft:ignore W9 made and dropped by one call
}
