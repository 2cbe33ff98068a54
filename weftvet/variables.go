package weftvet

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// target returns the variable that an assignment to e changes, whole or in part. field is the last
// field on the way to the part. plain says that it is the variable itself.
func (c *checker) target(e ast.Expr) (base, field *types.Var, plain bool) {
	plain = true
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.Ident:
			v, _ := c.info.ObjectOf(x).(*types.Var)
			if v != nil {
				v = v.Origin()
			}
			return v, field, plain
		case *ast.SelectorExpr:
			v, _ := c.info.Uses[x.Sel].(*types.Var)
			if v == nil {
				return nil, nil, false
			}
			v = v.Origin()
			if !v.IsField() {
				return v, field, plain // of another package
			}
			if field == nil {
				field = v
			}
			e, plain = x.X, false
		case *ast.IndexExpr:
			e, plain = x.X, false
		case *ast.StarExpr:
			e, plain = x.X, false
		case *ast.SliceExpr:
			e, plain = x.X, false
		default:
			return nil, nil, false
		}
	}
}

// assigns handles an assignment or a definition.
func (c *checker) assigns(n *ast.AssignStmt, in *function) {
	if len(n.Rhs) == 1 {
		if call, ok := ast.Unparen(n.Rhs[0]).(*ast.CallExpr); ok {
			c.dropped(call, n.Lhs, in)
			for _, arg := range call.Args {
				if lit, ok := ast.Unparen(arg).(*ast.FuncLit); ok {
					for _, l := range n.Lhs {
						if v, _, plain := c.target(l); v != nil && plain {
							c.results[lit] = append(c.results[lit], v)
						}
					}
				}
			}
		}
	} else {
		for i, r := range n.Rhs {
			if call, ok := ast.Unparen(r).(*ast.CallExpr); ok && i < len(n.Lhs) {
				c.dropped(call, n.Lhs[i:i+1], in)
			}
		}
	}
	for i, l := range n.Lhs {
		if len(n.Lhs) == len(n.Rhs) {
			c.keptInVariable(l, n.Rhs[i], in)
			c.binds(l, n.Rhs[i], in)
			if sel, ok := ast.Unparen(l).(*ast.SelectorExpr); ok {
				c.makesKey(sel.Sel, n.Rhs[i])
			}
		}
		if id, ok := l.(*ast.Ident); ok && c.info.Defs[id] != nil {
			continue // a new variable
		}
		c.assign(l, in, true)
	}
}

// assign records that e may be written. If only is true it is not read.
func (c *checker) assign(e ast.Expr, in *function, only bool) {
	base, field, plain := c.target(e)
	if base == nil {
		return
	}
	if packageLevel(base) {
		// What is set before the program begins, or once before it is used, is a constant.
		if !in.init && !in.once {
			c.written[base] = append(c.written[base], e.Pos())
		}
		return
	}
	if !c.usesWeft {
		return
	}
	if only {
		c.onlyWritten(e)
	}
	in.writes = append(in.writes, write{base, field, plain, types.ExprString(e), e.Pos()})
}

// onlyWritten marks the identifiers of an assignment's target that are not read by it.
func (c *checker) onlyWritten(e ast.Expr) {
	switch x := ast.Unparen(e).(type) {
	case *ast.Ident:
		c.writing[x] = true
	case *ast.SelectorExpr:
		c.writing[x.Sel] = true
		if id, ok := ast.Unparen(x.X).(*ast.Ident); ok {
			c.writing[id] = true
		}
	case *ast.IndexExpr:
		c.onlyWritten(x.X)
	case *ast.StarExpr:
		c.onlyWritten(x.X)
	}
}

// binds notes a literal that runs before the program, because it has a local name in what runs
// then, and is only called by that.
func (c *checker) binds(name, value ast.Expr, in *function) {
	lit, ok := ast.Unparen(value).(*ast.FuncLit)
	if !ok || !in.init && !in.once {
		return
	}
	if v, _, plain := c.target(name); plain && !packageLevel(v) && c.onlyCalled(v, in.node) {
		c.atOnce[lit] = true
	}
}

// onlyCalled says that all uses of v in a node are calls of it that are made in the course of that node, or assignments to it. A
// call in a literal counts if that is called at once or lazily itself, or has a local name that is only called. Names that are being
// looked at are in seen.
func (c *checker) onlyCalled(v *types.Var, in ast.Node, seen ...*types.Var) bool {
	seen = append(slices.Clip(seen), v)
	other := 0
	count := func(e ast.Expr, n int) {
		if id, ok := ast.Unparen(e).(*ast.Ident); ok && c.info.Uses[id] == v {
			other += n
		}
	}
	uses := func(n ast.Node) (found bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			found = found || ok && c.info.Uses[id] == v
			return !found
		})
		return found
	}
	now := map[ast.Expr]bool{}
	named := func(name, value ast.Expr) {
		id, ok := name.(*ast.Ident)
		lit, isLit := ast.Unparen(value).(*ast.FuncLit)
		if !ok || !isLit || !uses(lit) {
			return
		}
		if w, ok := c.info.ObjectOf(id).(*types.Var); ok && !packageLevel(w) {
			now[lit] = slices.Contains(seen, w) || c.onlyCalled(w, in, seen...)
		}
	}
	ast.Inspect(in, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			count(n, 1)
		case *ast.GoStmt:
			if uses(n.Call.Fun) {
				other++
			}
		case *ast.CallExpr:
			count(n.Fun, -1)
			now[ast.Unparen(n.Fun)] = true
			if f := c.callee(n); f != nil && f.Pkg() != nil && (callsAtOnce[f.Pkg().Path()] || lazily[nameOf(f, nil)]) {
				for _, arg := range n.Args {
					now[ast.Unparen(arg)] = true
				}
			}
		case *ast.FuncLit:
			if !now[n] && uses(n) {
				other++
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				if len(n.Values) == len(n.Names) {
					named(name, n.Values[i])
				}
			}
		case *ast.AssignStmt:
			for i, l := range n.Lhs {
				count(l, -1)
				if len(n.Rhs) == len(n.Lhs) {
					named(l, n.Rhs[i])
				}
			}
		}
		return true
	})
	return other == 0
}

// isDefinition says that t is a Workflow, an Activity or a Signal. Its address is taken to use
// it.
func isDefinition(t types.Type) bool {
	_, path, _ := named(t)
	return inLibrary(path)
}

// A variable is the fact about a package variable: where it is written, and what its first
// value comes from.
type variable struct {
	At      string // "": nowhere
	Hazards []Hazard
}

func (*variable) AFact() {}

func (v *variable) String() string { return hazardText(v.Hazards, v.At != "", "written at "+v.At) }

// initialised says that a package variable gets its value from what f does. Only what differs
// between processes matters. The functions of package flag make variables that Parse writes.
func (c *checker) initialised(s *ast.ValueSpec, f *function) {
	var hazards []Hazard
	for _, x := range f.faults {
		if x.scoped && (x.code == 1 || x.code == 2 || x.code == 5) && c.isCompared(s, x.pos) {
			hazards = append(hazards, c.hazard(x))
			break
		}
	}
	for i, id := range s.Names {
		v, ok := c.info.Defs[id].(*types.Var)
		if !ok || id.Name == "_" {
			continue
		}
		if len(hazards) > 0 {
			c.initial[v] = hazards
		}
		if i < len(s.Values) {
			if call, ok := ast.Unparen(s.Values[i]).(*ast.CallExpr); ok {
				if g := c.callee(call); g != nil && g.Pkg() != nil && g.Pkg().Path() == "flag" && g.Signature().Recv() == nil {
					c.written[v] = append(c.written[v], id.Pos())
				}
			}
		}
	}
}

var comparedFields = map[string]bool{"Name": true, "ID": true, "IdempotencyKey": true, "Func": true}

// isCompared says that a replay compares what is at pos in an initialiser, or may do other things
// because of it. Of a definition, and of its options, those are a name, an ID, a key, and the function of a workflow.
func (c *checker) isCompared(s *ast.ValueSpec, pos token.Pos) bool {
	compared := true
	ast.Inspect(s, func(n ast.Node) bool {
		if n == nil || pos < n.Pos() || n.End() <= pos {
			return false
		}
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			id, _ := n.Key.(*ast.Ident)
			v, _ := c.info.Uses[id].(*types.Var)
			if v != nil && v.IsField() && inLibrary(v.Pkg().Path()) && comparedFields[v.Name()] {
				compared = true
			}
		case ast.Expr:
			t := c.info.TypeOf(n)
			if p, ok := t.(*types.Pointer); ok {
				t = p.Elem()
			}
			if isDefinition(t) {
				compared = false
			}
		}
		return true
	})
	return compared
}

// variables checks W6, when all writes of the package are known, and what variables are
// initialised with.
func (c *checker) variables() {
	facts := map[*types.Var]*variable{}
	for v, hazards := range c.initial {
		facts[v] = &variable{Hazards: hazards}
	}
	for v, at := range c.written {
		if v.Pkg() != c.pass.Pkg {
			continue
		}
		for _, pos := range at {
			if !c.inTest(pos) {
				if facts[v] == nil {
					facts[v] = &variable{}
				}
				facts[v].At = c.place(pos)
				break
			}
		}
	}
	for v, fact := range facts {
		c.pass.ExportObjectFact(v, fact)
	}
	for _, f := range c.all {
		for _, u := range f.vars {
			fact := facts[u.v]
			if fact == nil {
				fact = &variable{}
				if u.v.Pkg() != c.pass.Pkg {
					c.pass.ImportObjectFact(u.v, fact)
				}
			}
			name := u.v.Name()
			if u.v.Pkg() != c.pass.Pkg {
				name = u.v.Pkg().Name() + "." + name
			}
			for _, h := range fact.Hazards {
				c.add(f, fault{code: code(h.Code), pos: u.pos, scoped: true, from: &h, what: name + ", whose value uses " + h.What + " (" + h.At + "),", why: h.Why})
			}
			at := fact.At
			for _, pos := range c.written[u.v] {
				// A test may replace a variable for itself.
				if at == "" && (!c.inTest(pos) || c.inTest(u.pos)) {
					at = c.place(pos)
				}
			}
			if at != "" {
				c.add(f, fault{code: 6, pos: u.pos, scoped: true, what: "the package variable " + name + ", which is written at " + at + ",",
					why: "a replay may find another value; pass the value to the workflow, or read it in an engine.Step"})
			}
		}
	}
}

func (c *checker) inTest(pos token.Pos) bool {
	return strings.HasSuffix(c.pass.Fset.Position(pos).Filename, "_test.go")
}

const whyAssigned = "a replay takes the outcome from the history and does not assign it; return the value from the function"

// steps checks W7: what a function that a replay does not run writes, and the run reads.
func (c *checker) steps() {
	if !c.usesWeft {
		return
	}
	for _, f := range c.all {
		run := f.run()
		if run == nil {
			continue
		}
		if f.kind == outside {
			for _, w := range f.writes {
				if c.readBeside(w, f, run) {
					c.add(f, fault{code: 7, pos: w.pos, why: whyAssigned,
						what: w.text + " is assigned in a step or an activity, and read outside it"})
				}
			}
		}
		for _, call := range f.calls {
			if f.kind == outside || f.kind == workflow && call.given {
				c.changes(call, f)
			}
		}
	}
}

// readBeside says that what f writes is read in the run, but not in f.
func (c *checker) readBeside(w write, f, run *function) bool {
	if packageLevel(w.base) || f.contains(w.base.Pos()) {
		return false // W6, or a variable of f
	}
	if w.plain {
		for _, v := range c.results[f.lit] {
			if v == w.base {
				return false // it gets the result of the step
			}
		}
	}
	if w.field != nil && c.fieldIsRead(w.field, f) {
		return true
	}
	_, pointer := types.Unalias(w.base.Type()).(*types.Pointer)
	for _, r := range c.reads[w.base] {
		if f.contains(r.id.Pos()) || !run.contains(r.id.Pos()) || c.writing[r.id] {
			continue
		}
		if w.field == nil {
			return true
		}
		// As a whole. What a pointer from elsewhere points to may be the outside world's.
		if !c.selected[r.id] && (!pointer || local(w.base, run)) && r.in.kind == workflow {
			return true
		}
	}
	return false
}

// local says that v is declared in the body of a function, and is not a parameter.
func local(v *types.Var, f *function) bool {
	var body *ast.BlockStmt
	switch n := f.node.(type) {
	case *ast.FuncDecl:
		body = n.Body
	case *ast.FuncLit:
		body = n.Body
	}
	return body != nil && body.Pos() <= v.Pos() && v.Pos() < body.End()
}

// fieldIsRead says that workflow code reads a field, other than in f, which may be nil.
func (c *checker) fieldIsRead(field *types.Var, f *function) bool {
	for _, r := range c.reads[field] {
		if r.in.kind == workflow && !c.writing[r.id] && (f == nil || !f.contains(r.id.Pos())) {
			return true
		}
	}
	return false
}

// changes checks a function that a step calls, or is: it may write fields of what the run
// has given to it.
func (c *checker) changes(call call, f *function) {
	g := c.functions[call.fn]
	if g == nil || g.kind == workflow {
		return
	}
	for i, arg := range c.arguments(call) {
		base, _, _ := c.target(addressed(arg))
		if base == nil || packageLevel(base) || f.kind == outside && f.contains(base.Pos()) {
			continue
		}
		for field := range c.fieldsWritten(g, i, map[*function]bool{}) {
			if f.kind == outside && c.fieldIsRead(field, f) || f.kind == workflow && c.fieldIsRead(field, nil) {
				c.add(f, fault{code: 7, pos: call.pos, why: whyAssigned,
					what: "the field " + field.Name() + " is assigned in a step or an activity, by " + g.name + ", and read outside it"})
				return
			}
		}
	}
}

// arguments are the receiver, as -1, and the arguments of a call, by their place.
func (c *checker) arguments(call call) map[int]ast.Expr {
	args := map[int]ast.Expr{}
	if call.recv != nil && call.fn.Signature().Recv() != nil {
		args[-1] = call.recv
	}
	if call.expr != nil {
		for i, arg := range call.expr.Args {
			args[i] = arg
		}
	}
	return args
}

func addressed(e ast.Expr) ast.Expr {
	if u, ok := ast.Unparen(e).(*ast.UnaryExpr); ok && u.Op == token.AND {
		return u.X
	}
	return e
}

// fieldsWritten are the fields that g writes through its parameter i, also by what it calls.
func (c *checker) fieldsWritten(g *function, i int, seen map[*function]bool) map[*types.Var]bool {
	fields := map[*types.Var]bool{}
	if seen[g] || g.fn == nil {
		return fields
	}
	seen[g] = true
	s := g.fn.Signature()
	var p *types.Var
	switch {
	case i == -1:
		p = s.Recv()
	case i < s.Params().Len():
		p = s.Params().At(i)
	}
	if p == nil {
		return fields
	}
	if _, ok := p.Type().Underlying().(*types.Pointer); !ok {
		return fields // a copy
	}
	for _, w := range g.writes {
		if w.base == p && w.field != nil {
			fields[w.field] = true
		}
	}
	for _, call := range g.calls {
		h := c.functions[call.fn]
		if h == nil || call.given {
			continue
		}
		for j, arg := range c.arguments(call) {
			if base, _, _ := c.target(addressed(arg)); base == p {
				for field := range c.fieldsWritten(h, j, seen) {
					fields[field] = true
				}
			}
		}
	}
	return fields
}
