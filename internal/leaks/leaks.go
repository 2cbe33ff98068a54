// Package leaks finds the goroutines that tests leave behind.
package leaks

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of m, checks as [Check] does, and ends the process.
func Main(m interface{ Run() int }) { os.Exit(Check(m.Run())) }

// Check returns the exit code of tests: code, or 1 if goroutines are left although code is 0. It waits a minute for them to end: they may
// wait for the network, on a busy machine.
func Check(code int) int {
	if code != 0 {
		return code
	}
	err := goleak.Find() // looks for less than half a second
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
