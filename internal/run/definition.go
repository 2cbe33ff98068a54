package run

import "reflect"

// A Definition is a workflow without its type parameters.
type Definition struct {
	Name   string
	Pinned bool
	Queue  string // where its runs wait by default
	Errors []error
	In     reflect.Type // of its input
	Out    reflect.Type // of its result
	Run    func(run *Handle, decode func(v any) error) (any, error)
}
