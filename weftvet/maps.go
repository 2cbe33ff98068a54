package weftvet

import (
	"go/ast"
	"go/token"
	"go/types"
)

const (
	rangeBegins = "a range over a map that begins operations, or waits for them,"
	whyOrder    = "the order of a map is another in each replay; range over its sorted keys"
)

// ranges checks a range statement: over a channel (W3), over a map (W4).
func (c *checker) ranges(n *ast.RangeStmt, in *function) {
	if n.Tok == token.ASSIGN {
		for _, e := range []ast.Expr{n.Key, n.Value} {
			if e != nil {
				c.assign(e, in, true)
			}
		}
	}
	t := c.info.TypeOf(n.X)
	if t == nil {
		return
	}
	if _, ok := core(t).(*types.Chan); ok {
		c.scoped(in, 3, n, "a range over a channel", whyConc+"a future or a signal")
		return
	}
	if !c.unordered(n.X) {
		return
	}
	l := &loop{c: c, stmt: n}
	l.look(n.Body)
	switch {
	case l.begins:
		c.scoped(in, 4, n, rangeBegins, whyOrder)
	case l.leaves != "" && !l.same:
		c.scoped(in, 4, n, "a range over a map that ends with "+l.leaves, whyOrder)
	}
}

// core is the type that all types of a type parameter's constraint have below them.
func core(t types.Type) types.Type {
	p, ok := types.Unalias(t).(*types.TypeParam)
	if !ok {
		return t.Underlying()
	}
	iface, ok := p.Constraint().Underlying().(*types.Interface)
	if !ok {
		return nil
	}
	for e := range iface.EmbeddedTypes() {
		if u, ok := e.Underlying().(*types.Union); ok {
			if u.Len() > 0 {
				return u.Term(0).Type().Underlying()
			}
			continue
		}
		if _, ok := e.Underlying().(*types.Interface); !ok {
			return e.Underlying()
		}
	}
	return nil
}

// unordered says that x is a map, an iterator over one, or a slice that is collected from one. It may be
// the variable that has one of them.
func (c *checker) unordered(x ast.Expr) bool {
	t := c.info.TypeOf(x)
	if t == nil {
		return false
	}
	if _, ok := core(t).(*types.Map); ok {
		return true
	}
	switch x := ast.Unparen(x).(type) {
	case *ast.Ident:
		value := c.definition(x)
		if _, ok := core(t).(*types.Slice); ok && !c.onlyRanged(x) {
			return false // it may be sorted
		}
		return value != nil && c.unordered(value)
	case *ast.SelectorExpr:
		f, ok := c.info.Uses[x.Sel].(*types.Func)
		return ok && isSyncRange(f)
	case *ast.CallExpr:
		f := c.callee(x)
		if f == nil || f.Pkg() == nil {
			return false
		}
		switch f.Pkg().Path() + "." + f.Name() {
		case "maps.Keys", "maps.Values", "maps.All", "golang.org/x/exp/maps.Keys", "golang.org/x/exp/maps.Values":
			return true
		case "slices.Collect":
			return len(x.Args) == 1 && c.unordered(x.Args[0])
		}
	}
	return false
}

// isSyncRange says that f is the Range of a sync.Map, which has an iterator's type.
func isSyncRange(f *types.Func) bool { return f.FullName() == "(*sync.Map).Range" }

// onlyRanged says that nothing is done with a variable but to range over it.
func (c *checker) onlyRanged(id *ast.Ident) bool {
	uses := 0
	for _, o := range c.info.Uses {
		if o == c.info.Uses[id] {
			uses++
		}
	}
	v, ok := c.info.Uses[id].(*types.Var)
	return ok && uses == c.ranged[v]
}

// A loop is what the body of a range over a map does that depends on the order.
type loop struct {
	c      *checker
	stmt   *ast.RangeStmt
	begins bool
	leaves string // "a return" or "a break"

	// same is false if it matters in which round the loop is left: in one that returns
	// something else, or after another effect.
	same   bool
	ends   map[string]bool   // the ways in which it is left
	values map[string]string // what is assigned to variables that are declared outside
}

func (l *loop) look(body *ast.BlockStmt) {
	l.begins = l.c.begins(body)
	l.same, l.ends, l.values = true, map[string]bool{}, map[string]string{}
	labels := map[string]bool{} // of statements in the body
	if own, ok := l.c.labels[l.stmt]; ok {
		labels[own] = true
	}
	// An unlabelled break is the loop's own if breaks is true.
	var visit func(n ast.Node, breaks bool)
	visit = func(n ast.Node, breaks bool) {
		ast.Inspect(n, func(x ast.Node) bool {
			if x == n {
				return true
			}
			switch x := x.(type) {
			case *ast.FuncLit:
				return false
			case *ast.LabeledStmt:
				labels[x.Label.Name] = true
			case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
				visit(x, false)
				return false
			case *ast.ReturnStmt:
				way := "return"
				for _, r := range x.Results {
					l.same = l.same && l.fixed(r)
					way += " " + types.ExprString(r)
				}
				l.leave("a return", way)
			case *ast.BranchStmt:
				own := x.Label != nil && x.Label.Name == l.c.labels[l.stmt]
				switch {
				case x.Label == nil && x.Tok == token.BREAK && breaks,
					own && x.Tok == token.BREAK,
					x.Label != nil && !labels[x.Label.Name]:
					l.leave("a "+x.Tok.String(), "break")
				}
			case *ast.ExprStmt, *ast.SendStmt, *ast.GoStmt, *ast.DeferStmt:
				l.same = false // it may have an effect
			case *ast.IncDecStmt:
				l.sets(x.X, nil)
			case *ast.AssignStmt:
				for i, lhs := range x.Lhs {
					if len(x.Lhs) == len(x.Rhs) && x.Tok == token.ASSIGN {
						l.sets(lhs, x.Rhs[i])
					} else {
						l.sets(lhs, nil)
					}
				}
			}
			return true
		})
	}
	visit(body, true)
}

func (l *loop) leave(how, way string) {
	l.leaves = how
	l.ends[way] = true
	l.same = l.same && len(l.ends) == 1
}

// sets notes an assignment in the body to what is declared outside of it.
func (l *loop) sets(lhs, value ast.Expr) {
	base, _, plain := l.c.target(lhs)
	if id, ok := ast.Unparen(lhs).(*ast.Ident); ok && id.Name == "_" {
		return
	}
	if base != nil && l.stmt.Pos() <= base.Pos() && base.Pos() < l.stmt.End() && plain {
		return
	}
	if base == nil || !plain || value == nil || !l.fixed(value) {
		l.same = false
		return
	}
	text := types.ExprString(value)
	if old, ok := l.values[base.Name()]; ok && old != text {
		l.same = false
	}
	l.values[base.Name()] = text
}

// fixed says that an expression has the same value in each round: it calls nothing and uses
// nothing that the loop changes.
func (l *loop) fixed(e ast.Expr) bool {
	fixed := true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr, *ast.FuncLit:
			fixed = false
		case *ast.Ident:
			v, ok := l.c.info.Uses[n].(*types.Var)
			if ok && !v.IsField() && l.stmt.Pos() <= v.Pos() && v.Pos() < l.stmt.End() {
				fixed = false
			}
		}
		return fixed
	})
	return fixed
}
