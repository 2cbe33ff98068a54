package run

import (
	"reflect"

	"github.com/weft-go/weft"
)

// A Definition is a workflow without its type parameters.
type Definition struct {
	Name   string
	Pinned bool
	Queue  string // where its runs wait by default
	Kept   weft.Retention
	Errors []error
	In     reflect.Type // of its input
	Out    reflect.Type // of its result
	Run    func(run *Handle, decode func(v any) error) (any, error)
}
