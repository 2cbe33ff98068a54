package run

import (
	"reflect"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
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

	Versions map[string]int // the newest version of each change that Run knows
}

// Unknown returns the first choice of wf that d does not have, or nil. Code of d could not go on where wf is.
func (d *Definition) Unknown(wf *journal.Workflow) *weft.UnknownVersionError {
	for _, c := range wf.Versions {
		if newest := d.Versions[c.Change]; newest < c.Version {
			return &weft.UnknownVersionError{WorkflowID: wf.ID, Change: c.Change, Version: c.Version, Newest: newest}
		}
	}
	return nil
}
