package run

// A Definition is a workflow without its type parameters.
type Definition struct {
	Name   string
	Pinned bool
	Queue  string // where its runs wait by default
	Errors []error
	Run    func(run *Handle, decode func(v any) error) (any, error)
}
