package etcd

import "fmt"

func wrap(action string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("etcd: %s: %w", action, err)
}

// An unknownError is an error after which a transaction may have been applied, or may still be
// in flight.
//
// The server's "database space exceeded" is one of them: the transaction that reaches the limit
// is applied, and answered with that error.
type unknownError struct{ error }

func (e *unknownError) Error() string { return "outcome unknown: " + e.error.Error() }

func (e *unknownError) Unwrap() error { return e.error }
