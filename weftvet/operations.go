package weftvet

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strings"
)

const (
	whyForeign  = "it belongs to another goroutine, in which its methods return ErrForeignRun; "
	whyKept     = "a replay makes another one, and in another branch or run its methods return ErrForeignRun; pass it to the functions that use it"
	whyDropped  = "the run goes on although the operation failed or the workflow is cancelled; handle it"
	whyName     = "a name is compared with the history and has to be the same in each replay; use a constant, and put what varies into the input"
	whySentinel = "an error that comes from the history is another value and wraps the sentinel; use errors.Is"
)

// operation checks a call of a function that begins operations: its name, and who may call it.
func (c *checker) operation(n *ast.CallExpr, f *types.Func, in *function) {
	for i, arg := range n.Args {
		if c.givesName(n, i) && !c.isConstant(arg) && !c.isNameParameter(arg, in) {
			c.wrong(in, 11, arg, "the name of an operation is computed", whyName)
		}
	}
	// Clients act on the store.
	if ofWeft(f.Pkg().Path()) && !isOperation(f) && f.Signature().Params().Len() > 0 && isContext(f.Signature().Params().At(0).Type()) && !isStepHelper(f) {
		name := f.Pkg().Name() + "." + f.Name()
		if recv := receiver(f); recv != "" {
			name = f.Pkg().Name() + "." + recv + "." + f.Name()
		}
		c.scoped(in, 5, n, name, whyStore)
	}
}

// isStepHelper says that f is for activities, and harmless elsewhere.
func isStepHelper(f *types.Func) bool { return f.Pkg().Path() == weft+"/activity" }

func (c *checker) isConstant(e ast.Expr) bool {
	if tv := c.info.Types[e]; tv.Value != nil && tv.Value.Kind() == constant.String {
		return true
	}
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok {
		return false
	}
	value := c.definition(id)
	return value != nil && c.info.Types[value].Value != nil
}

// definition returns the value with which a variable is declared, if it is never written afterwards. Otherwise it returns nil.
func (c *checker) definition(id *ast.Ident) ast.Expr {
	v, ok := c.info.Uses[id].(*types.Var)
	if !ok {
		return nil
	}
	if c.fixed == nil {
		c.define()
	}
	return c.fixed[v]
}

func (c *checker) define() {
	c.fixed, c.ranged = map[*types.Var]ast.Expr{}, map[*types.Var]int{}
	define := func(id, value ast.Expr) {
		name, ok := id.(*ast.Ident)
		if !ok {
			return
		}
		if v, ok := c.info.Defs[name].(*types.Var); ok {
			c.fixed[v] = value
		}
	}
	written := map[*types.Var]bool{}
	for _, file := range c.pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, l := range n.Lhs {
					if len(n.Lhs) == len(n.Rhs) {
						define(l, n.Rhs[i])
					}
					if id, ok := l.(*ast.Ident); ok && c.info.Defs[id] == nil {
						if v, ok := c.info.Uses[id].(*types.Var); ok {
							written[v] = true
						}
					}
				}
			case *ast.ValueSpec:
				for i, id := range n.Names {
					if len(n.Names) == len(n.Values) {
						define(id, n.Values[i])
					}
				}
			case *ast.RangeStmt:
				if id, ok := ast.Unparen(n.X).(*ast.Ident); ok {
					if v, ok := c.info.Uses[id].(*types.Var); ok {
						c.ranged[v]++
					}
				}
			case *ast.UnaryExpr:
				if id, ok := ast.Unparen(n.X).(*ast.Ident); ok && n.Op == token.AND {
					if v, ok := c.info.Uses[id].(*types.Var); ok {
						written[v] = true
					}
				}
			}
			return true
		})
	}
	for v := range written {
		delete(c.fixed, v)
	}
}

// isNameParameter says that a wrapper passes on a name that its callers give. It is checked there.
func (c *checker) isNameParameter(e ast.Expr, in *function) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok {
		return false
	}
	v, ok := c.info.Uses[id].(*types.Var)
	if !ok {
		return false
	}
	for ; in != nil; in = in.outer {
		if in.fn == nil || !takesRun(in.fn.Signature()) {
			continue
		}
		for p := range in.fn.Signature().Params().Variables() {
			if p == v {
				return true
			}
		}
	}
	return false
}

// dropped checks W10. lhs is what the results are assigned to, nil for a statement.
func (c *checker) dropped(call *ast.CallExpr, lhs []ast.Expr, in *function) {
	if !c.usesWeft || in.kind == outside || in.kind == goroutine {
		return
	}
	f := c.callee(call)
	var name string
	switch {
	case f == nil:
		return
	case isOperation(f) || isSetter(f):
		name = f.Name()
		if recv := receiver(f); recv != "" {
			name = recv + "." + name
		}
	default:
		if !c.callBegins(call, true, map[*ast.FuncLit]bool{}) {
			return
		}
		name = nameOf(f, c.pass.Pkg)
	}
	results := f.Signature().Results()
	if results.Len() == 0 {
		return
	}
	last := results.Len() - 1
	if lhs != nil && (len(lhs) != results.Len() || !isBlank(lhs[last])) {
		return
	}
	switch t := results.At(last).Type(); {
	case isError(t):
		c.wrong(in, 10, call, "the error of "+name+" is dropped", whyDropped)
	case isFuture(t):
		c.wrong(in, 10, call, "the future of "+name+" is dropped, and with it its error",
			"what it began is given up when the function returns; wait for it with Get, All or Select")
	}
}

// specified checks W10 for a declaration with var.
func (c *checker) specified(s *ast.ValueSpec, in *function) {
	names := make([]ast.Expr, len(s.Names))
	for i, id := range s.Names {
		names[i] = id
	}
	for i, v := range s.Values {
		if len(s.Values) == len(names) {
			c.binds(names[i], v, in)
		}
		if call, ok := ast.Unparen(v).(*ast.CallExpr); ok {
			if len(s.Values) == 1 {
				c.dropped(call, names, in)
			} else {
				c.dropped(call, names[i:i+1], in)
			}
		}
	}
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}

// foreign checks W8 for the use of a variable.
func (c *checker) foreign(id *ast.Ident, v *types.Var, in *function) {
	if v.IsField() || !isRun(v.Type()) || in.lit == nil || in.contains(v.Pos()) {
		return
	}
	switch in.kind {
	case workflow:
		c.wrong(in, 8, id, v.Name()+" is a Run of an outer function", whyForeign+"use the Run that this function gets")
	case outside:
		c.wrong(in, 8, id, v.Name()+" is a Run, used in a step or an activity", whyForeign+"read what is needed before it, or use its context")
	case goroutine:
		c.wrong(in, 8, id, v.Name()+" is a Run, used in a goroutine", whyForeign+"use engine.Go")
	}
}

// keptGlobals checks W9 for package variables.
func (c *checker) keptGlobals(s *ast.ValueSpec, in *function) {
	for _, id := range s.Names {
		if v, ok := c.info.Defs[id].(*types.Var); ok && id.Name != "_" {
			if k := keeps(v.Type()); k != "" {
				c.wrong(in, 9, id, "the package variable "+id.Name+" keeps "+k, whyKept)
			}
		}
	}
}

// keptFields checks W9 for the fields of a type at the top of a package. A type within a
// function is as local as its variables.
func (c *checker) keptFields(s *ast.TypeSpec, in *function) {
	ast.Inspect(s.Type, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType, *ast.InterfaceType:
			return false
		case *ast.StructType:
			for _, f := range n.Fields.List {
				if k := keeps(c.info.TypeOf(f.Type)); k != "" {
					name := "embedded"
					if len(f.Names) > 0 {
						name = f.Names[0].Name
					}
					c.wrong(in, 9, f, "the field "+name+" of "+s.Name.Name+" keeps "+k, whyKept)
				}
			}
		}
		return true
	})
}

// keptInVariable checks W9 for what has a type that does not tell: a field or a package variable of an interface type.
func (c *checker) keptInVariable(l, value ast.Expr, in *function) {
	k := keeps(c.info.TypeOf(value))
	if k == "" || keeps(c.info.TypeOf(l)) != "" {
		return
	}
	switch base, field, _ := c.target(l); {
	case field != nil:
		c.wrong(in, 9, l, "the field "+field.Name()+" keeps "+k, whyKept)
	case packageLevel(base):
		c.wrong(in, 9, l, "the package variable "+base.Name()+" keeps "+k, whyKept)
	}
}

func (c *checker) keptInChannel(n *ast.SendStmt, in *function) {
	if k := keeps(c.info.TypeOf(n.Value)); k != "" {
		c.wrong(in, 9, n, "a channel keeps "+k, whyKept)
	}
}

// composite notes the fields that a literal sets. It checks a definition that is made where a
// workflow runs, and finds the functions that make keys: these run in the workflow.
func (c *checker) composite(n *ast.CompositeLit, in *function) {
	t := c.info.TypeOf(n)
	if t == nil {
		return
	}
	for _, e := range n.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if id, ok := kv.Key.(*ast.Ident); ok {
				if v, ok := c.info.Uses[id].(*types.Var); ok && v.IsField() {
					c.writing[id] = true
				}
			}
		}
	}
	_, path, name := named(t)
	if !inLibrary(path) {
		return
	}
	for _, e := range n.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, ok := kv.Key.(*ast.Ident)
		if !ok {
			continue
		}
		c.makesKey(key, kv.Value)
		if key.Name == "Name" && (name == "Activity" || name == "Workflow" || name == "Signal") && !c.isConstant(kv.Value) {
			c.scoped(in, 11, kv.Value, "a computed name", whyName)
		}
	}
}

// makesKey notes value, what a field of an activity gets, if it is a function that makes keys.
func (c *checker) makesKey(field *ast.Ident, value ast.Expr) {
	v, ok := c.info.Uses[field].(*types.Var)
	if !ok || !v.IsField() || !inLibrary(v.Pkg().Path()) || v.Name() != "IdempotencyKey" && v.Name() != "ResourceScope" {
		return
	}
	if lit, ok := ast.Unparen(value).(*ast.FuncLit); ok {
		c.roles[lit] = workflow
	} else if id := funcIdent(value); id != nil {
		if f, ok := c.info.Uses[id].(*types.Func); ok {
			c.keys = append(c.keys, f.Origin())
		}
	}
}

// compares checks W11 for a comparison.
func (c *checker) compares(n ast.Node, op string, x, y ast.Expr, in *function) {
	if !isError(c.info.TypeOf(x)) && !isError(c.info.TypeOf(y)) || c.isMethodIs(in) {
		return
	}
	for _, e := range []ast.Expr{x, y} {
		if name := c.sentinel(e); name != "" {
			c.scoped(in, 11, n, op+" with "+name, whySentinel)
			return
		}
	}
}

func (c *checker) switches(n *ast.SwitchStmt, in *function) {
	if n.Tag == nil || !isError(c.info.TypeOf(n.Tag)) || c.isMethodIs(in) {
		return
	}
	for _, s := range n.Body.List {
		if clause, ok := s.(*ast.CaseClause); ok {
			for _, e := range clause.List {
				if name := c.sentinel(e); name != "" {
					c.scoped(in, 11, e, "a case with "+name, whySentinel)
				}
			}
		}
	}
}

// sentinel returns the name of a package variable that is an error. Readers return io.EOF
// itself.
func (c *checker) sentinel(e ast.Expr) string {
	id := funcIdent(e)
	if id == nil {
		return ""
	}
	v, ok := c.info.Uses[id].(*types.Var)
	if !ok || !packageLevel(v) || !isError(v.Type()) || v.Pkg().Path() == "io" && v.Name() == "EOF" {
		return ""
	}
	return strings.TrimPrefix(v.Pkg().Name()+"."+v.Name(), c.pass.Pkg.Name()+".")
}

// isMethodIs says that f is a method that errors.Is calls, which compares with ==.
func (c *checker) isMethodIs(f *function) bool {
	if f.fn == nil || f.fn.Name() != "Is" || f.fn.Signature().Recv() == nil {
		return false
	}
	p := f.fn.Signature().Params()
	return p.Len() == 1 && isError(p.At(0).Type())
}
