// Package waiting explains why a call could not finish: it records in the context of a call
// what the call waits for, and the last error of the store, for a *weft.InterruptedError.
package waiting
