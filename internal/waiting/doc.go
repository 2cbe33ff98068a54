// Package waiting explains why a call could not finish. The context of a call has a record of
// what the call waits for and of the last error of the store, which [Store] adds to. From that
// it makes a *weft.InterruptedError.
package waiting
