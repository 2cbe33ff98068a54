package engine

// A definition is a workflow without its type parameters.
type definition struct {
	name   string
	pinned bool
	queue  string // where its runs wait by default
	errors []error
	run    func(run *runHandle, decode func(v any) error) (any, error)
}
