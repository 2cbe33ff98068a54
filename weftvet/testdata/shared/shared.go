// Package shared has variables for other packages.
package shared

import "time"

// Started differs between processes.
var Started = time.Now()

var (
	Limit   = 10 // written
	Regions = []string{"eu", "us"}
)

// Set is called by somebody.
func Set(n int) { Limit = n }

// Get reads what is written.
func Get() int { return Limit }
