package weftvet

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/types/typeutil"
)

// A wrapper is what callers must know of a function before its package is walked.
type wrapper struct {
	begins bool         // it may begin operations
	sets   bool         // it may begin operations, or set labels or values
	steps  map[int]bool // parameters that are only called in a step
	names  map[int]bool // parameters that become names of operations
}

// prepare finds the functions of the package, and the wrappers among them. Wrappers may call each
// other, so it repeats until nothing is new. Each round only adds, so it ends.
func (c *checker) prepare() {
	c.usesWeft = importsWeft(c.pass.Pkg)
	var decls []*ast.FuncDecl
	c.closures = map[*types.Var]*ast.FuncLit{}
	for _, file := range c.pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if f, ok := c.info.Defs[n.Name].(*types.Func); ok && n.Body != nil {
					decls = append(decls, n)
					c.wrappers[f] = &wrapper{steps: map[int]bool{}, names: map[int]bool{}}
				}
			case *ast.AssignStmt:
				for i, l := range n.Lhs {
					if i < len(n.Rhs) && len(n.Lhs) == len(n.Rhs) {
						c.closure(l, n.Rhs[i])
					}
				}
			case *ast.ValueSpec:
				for i, l := range n.Names {
					if i < len(n.Values) && len(n.Names) == len(n.Values) {
						c.closure(l, n.Values[i])
					}
				}
			}
			return c.usesWeft // without it only the functions matter, which are at the top
		})
	}
	for changed := c.usesWeft; changed; {
		changed = false
		for _, d := range decls {
			f := c.info.Defs[d.Name].(*types.Func)
			changed = c.wraps(d, f, c.wrappers[f]) || changed
		}
	}
}

func (c *checker) closure(name, value ast.Expr) {
	id, ok := name.(*ast.Ident)
	lit, isLit := ast.Unparen(value).(*ast.FuncLit)
	if v, isVar := c.info.ObjectOf(id).(*types.Var); ok && isLit && isVar {
		c.closures[v] = lit
	}
}

// wraps adds to w what can be said of f now, and returns whether that is more than before.
func (c *checker) wraps(d *ast.FuncDecl, f *types.Func, w *wrapper) (more bool) {
	if !w.begins && c.begins(d.Body) {
		w.begins, more = true, true
	}
	if !w.sets && c.beginsIn(d.Body, true, map[*ast.FuncLit]bool{}) {
		w.sets, more = true, true
	}
	if !takesRun(f.Signature()) {
		return more
	}
	for i := range f.Signature().Params().Len() {
		p := f.Signature().Params().At(i)
		switch t := p.Type().Underlying().(type) {
		case *types.Signature:
			if !w.steps[i] && c.onlyInSteps(d.Body, p) {
				w.steps[i], more = true, true
			}
		case *types.Basic:
			if t.Info()&types.IsString != 0 && !w.names[i] && c.isName(d.Body, p) {
				w.names[i], more = true, true
			}
		}
	}
	return more
}

// onlyInSteps says that every use of the function p is in a step, or gives it to one.
func (c *checker) onlyInSteps(body ast.Node, p *types.Var) bool {
	inside, used := 0, false
	var visit func(n ast.Node) bool
	ok := true
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			if s, isSig := c.info.TypeOf(n).(*types.Signature); isSig && worksOutside(s) {
				inside++
				ast.Inspect(n.Body, visit)
				inside--
				return false
			}
		case *ast.CallExpr:
			ast.Inspect(n.Fun, visit)
			for i, arg := range n.Args {
				if c.givesToStep(n, i) {
					inside++
					ast.Inspect(arg, visit)
					inside--
				} else {
					ast.Inspect(arg, visit)
				}
			}
			return false
		case *ast.Ident:
			if c.info.Uses[n] == p {
				used = true
				ok = ok && inside > 0
			}
		}
		return true
	}
	ast.Inspect(body, visit)
	return used && ok
}

// isName says that p is the name of an operation.
func (c *checker) isName(body ast.Node, p *types.Var) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			for i, arg := range call.Args {
				if id, ok := ast.Unparen(arg).(*ast.Ident); ok && c.info.Uses[id] == p && c.givesName(call, i) {
					found = true
				}
			}
		}
		return !found
	})
	return found
}

// callee is the function or method that a call names, not an instance of it. It is nil for a function value.
func (c *checker) callee(call *ast.CallExpr) *types.Func {
	f, _ := typeutil.Callee(c.info, call).(*types.Func)
	if f == nil {
		return nil
	}
	return f.Origin()
}

// knownOf returns what is known of a function of the user, in this package or another.
func (c *checker) knownOf(f *types.Func) *wrapper {
	if f == nil || f.Pkg() == nil {
		return nil
	}
	if w, ok := c.wrappers[f]; ok {
		return w
	}
	if f.Pkg() == c.pass.Pkg {
		return nil
	}
	var s summary
	if !c.pass.ImportObjectFact(f, &s) {
		return nil
	}
	w := &wrapper{begins: s.Begins, sets: s.Sets, steps: map[int]bool{}, names: map[int]bool{}}
	for _, i := range s.Steps {
		w.steps[i] = true
	}
	for _, i := range s.Names {
		w.names[i] = true
	}
	c.wrappers[f] = w
	return w
}

// givesToStep says that a function given to a call as its argument i is called in a step only.
func (c *checker) givesToStep(call *ast.CallExpr, i int) bool {
	w := c.knownOf(c.callee(call))
	return w != nil && w.steps[i]
}

// givesName says that the argument i of a call is the name of an operation.
func (c *checker) givesName(call *ast.CallExpr, i int) bool {
	f := c.callee(call)
	if f == nil || f.Pkg() == nil {
		return false
	}
	if inLibrary(f.Pkg().Path()) {
		return isOperation(f) && i < f.Signature().Params().Len() && f.Signature().Params().At(i).Name() == "name"
	}
	w := c.knownOf(f)
	return w != nil && w.names[i]
}

// silent are methods of a Run that begin nothing and wait for nothing.
var silent = map[string]bool{
	"ID": true, "Nominal": true, "Now": true, "HistoryLen": true, "Logger": true, "Version": true,
	"WithCancel": true, "WithoutCancel": true, "Cancelled": true,
}

// isSetter says that f sets a label or a value of the workflow. It is no operation: a replay compares
// neither its name nor its place. But its error must not be dropped.
func isSetter(f *types.Func) bool {
	if f.Pkg() == nil || f.Pkg().Path() != weft+"/engine" {
		return false
	}
	name := receiver(f) + "." + f.Name()
	return name == "Run.SetLabel" || name == "Value.Set"
}

// isOperation says that f, of Weft itself, begins an operation or waits for one. Run.Random
// counts too: the order of its calls matters like theirs.
func isOperation(f *types.Func) bool {
	if f == nil || f.Pkg() == nil || !inLibrary(f.Pkg().Path()) || isSetter(f) {
		return false
	}
	if recv := f.Signature().Recv(); recv != nil && isRun(recv.Type()) {
		return !silent[f.Name()]
	}
	return takesRun(f.Signature())
}

// begins says that code may begin operations. A function literal with a Run of its own begins
// them elsewhere.
func (c *checker) begins(n ast.Node) bool { return c.beginsIn(n, false, map[*ast.FuncLit]bool{}) }

// beginsIn counts setters too, if setters is true.
func (c *checker) beginsIn(n ast.Node, setters bool, seen map[*ast.FuncLit]bool) (found bool) {
	if !c.usesWeft {
		return false
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			if s, ok := c.info.TypeOf(n).(*types.Signature); ok && (takesRun(s) || worksOutside(s)) {
				return false
			}
		case *ast.CallExpr:
			found = found || c.callBegins(n, setters, seen)
		}
		return !found
	})
	return found
}

func (c *checker) callBegins(call *ast.CallExpr, setters bool, seen map[*ast.FuncLit]bool) bool {
	f := c.callee(call)
	switch {
	case f == nil:
		if id, ok := ast.Unparen(call.Fun).(*ast.Ident); ok {
			if v, ok := c.info.Uses[id].(*types.Var); ok {
				if lit := c.closures[v]; lit != nil {
					if seen[lit] {
						return false
					}
					seen[lit] = true
					return c.beginsIn(lit.Body, setters, seen)
				}
			}
		}
	case isOperation(f):
		return true
	case isSetter(f):
		return setters
	case f.Pkg() != nil && inLibrary(f.Pkg().Path()):
		return false
	default:
		if w := c.knownOf(f); w != nil {
			return w.begins || setters && w.sets
		}
	}
	for _, arg := range call.Args {
		if isRun(c.info.TypeOf(arg)) {
			return true
		}
	}
	return false
}
