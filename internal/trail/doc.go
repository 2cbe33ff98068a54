// Package trail remembers which entries of a list an engine has skipped, and how often to read
// them again.
package trail
