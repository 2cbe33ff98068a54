package weftvet

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

type checker struct {
	pass     *analysis.Pass
	info     *types.Info
	usesWeft bool
	ignored  map[line][]code
	found    []finding

	wrappers map[*types.Func]*wrapper
	closures map[*types.Var]*ast.FuncLit // variables whose value is a literal

	all       []*function
	functions map[*types.Func]*function
	keys      []*types.Func // functions that make keys of activities

	// By the walk over the calls around them.
	roles  map[*ast.FuncLit]kind
	atOnce map[*ast.FuncLit]bool        // that are only called where they are made
	once   map[*ast.FuncLit]bool        // that are called once: see lazily
	refs   map[*ast.Ident]bool          // functions that are given to a step
	called map[*ast.Ident]*ast.CallExpr // functions that are called where they are named
	limits map[*ast.Ident]bool          // variables in the limit of a Map, which is no part of the history
	recvs  map[*ast.Ident]ast.Expr      // what a method is selected from

	// Where variables are read and written.
	reads    map[*types.Var][]read
	writing  map[*ast.Ident]bool // what is only assigned
	selected map[*ast.Ident]bool // what only a field is taken from
	written  map[*types.Var][]token.Pos
	initial  map[*types.Var][]Hazard
	results  map[*ast.FuncLit][]*types.Var // to which variables the result of a step is assigned
	labels   map[ast.Stmt]string
	fixed    map[*types.Var]ast.Expr // see definition
	ranged   map[*types.Var]int      // how many statements range over a variable
	comms    map[ast.Node]bool       // sends and receives of a select, which is reported as one
}

// A kind of function says where its code runs.
type kind uint8

const (
	free      kind = iota // wherever it is called
	workflow              // in a run
	outside               // in a step or an activity
	goroutine             // in a goroutine of its own
)

// A function is a declared function, with those literals in it that run where it runs; or
// a literal that runs elsewhere.
type function struct {
	name   string
	kind   kind
	fn     *types.Func // nil for a literal
	lit    *ast.FuncLit
	node   ast.Node
	outer  *function // of a literal
	init   bool      // what is walked now runs before the program
	once   bool      // what is walked now runs once: see lazily
	faults []fault
	calls  []call
	writes []write
	vars   []use
}

// A call is a call of a function, or a use of it as a value that may be called here.
type call struct {
	fn    *types.Func
	pos   token.Pos
	recv  ast.Expr      // of a method
	expr  *ast.CallExpr // nil: it is a value
	given bool          // to what calls it elsewhere
}

type read struct {
	id *ast.Ident
	in *function
}

type use struct {
	v   *types.Var
	pos token.Pos
}

// A write is an assignment to a variable, or to a part of it.
type write struct {
	base  *types.Var
	field *types.Var // the last field on the way, if any
	plain bool       // the variable itself
	text  string
	pos   token.Pos
}

func (f *function) contains(pos token.Pos) bool {
	return f.node != nil && f.node.Pos() <= pos && pos < f.node.End()
}

// run returns the outermost workflow function that f is in.
func (f *function) run() (found *function) {
	for ; f != nil; f = f.outer {
		if f.kind == workflow {
			found = f
		}
	}
	return found
}

func (c *checker) walkAll() {
	c.roles, c.refs = map[*ast.FuncLit]kind{}, map[*ast.Ident]bool{}
	c.atOnce, c.once = map[*ast.FuncLit]bool{}, map[*ast.FuncLit]bool{}
	c.called, c.recvs = map[*ast.Ident]*ast.CallExpr{}, map[*ast.Ident]ast.Expr{}
	c.limits = map[*ast.Ident]bool{}
	c.reads, c.writing, c.selected = map[*types.Var][]read{}, map[*ast.Ident]bool{}, map[*ast.Ident]bool{}
	c.written, c.initial = map[*types.Var][]token.Pos{}, map[*types.Var][]Hazard{}
	c.results, c.comms = map[*ast.FuncLit][]*types.Var{}, map[ast.Node]bool{}
	c.labels = map[ast.Stmt]string{}
	for _, file := range c.pass.Files {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				fn, ok := c.info.Defs[d.Name].(*types.Func)
				if !ok || d.Body == nil {
					continue
				}
				f := &function{name: nameOf(fn, c.pass.Pkg), fn: fn, node: d, init: d.Recv == nil && d.Name.Name == "init"}
				if recv := fn.Signature().Recv(); takesRun(fn.Signature()) || recv != nil && isRun(recv.Type()) {
					f.kind = workflow
				}
				c.all = append(c.all, f)
				c.functions[fn] = f
				c.walk(d.Body, f)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					f := &function{node: s, init: true}
					switch s := s.(type) {
					case *ast.ValueSpec:
						f.name = s.Names[0].Name
						c.keptGlobals(s, f)
						c.walk(s, f)
						c.initialised(s, f)
					case *ast.TypeSpec:
						c.keptFields(s, f)
						c.walk(s, f)
					}
					c.found = append(c.found, c.unscoped(f)...)
				}
			}
		}
	}
}

func (c *checker) unscoped(f *function) (found []finding) {
	for _, x := range f.faults {
		if !x.scoped {
			found = append(found, finding{x.pos, x.code, x.what + ": " + x.why})
		}
	}
	return found
}

// add records a fault, unless it is suppressed.
func (c *checker) add(in *function, f fault) {
	if f.scoped && (in.kind == outside || in.kind == goroutine) {
		return
	}
	if !c.isIgnored(f.code, f.pos) {
		in.faults = append(in.faults, f)
	}
}

// scoped records a fault of code that is wrong only where a workflow runs it.
func (c *checker) scoped(in *function, code code, n ast.Node, what, why string) {
	c.add(in, fault{code: code, pos: n.Pos(), what: what, why: why, scoped: true})
}

func (c *checker) wrong(in *function, code code, n ast.Node, what, why string) {
	c.add(in, fault{code: code, pos: n.Pos(), what: what, why: why})
}

func (c *checker) walk(n ast.Node, in *function) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			c.literal(n, in)
			return false
		case *ast.CallExpr:
			c.call(n, in)
		case *ast.GoStmt:
			c.goes(n, in)
		case *ast.DeferStmt:
			c.dropped(n.Call, nil, in)
		case *ast.ExprStmt:
			if call, ok := ast.Unparen(n.X).(*ast.CallExpr); ok {
				c.dropped(call, nil, in)
			}
		case *ast.SendStmt:
			if !c.comms[n] {
				c.scoped(in, 3, n, "a send to a channel", whyConc+"a future or a signal")
			}
			c.keptInChannel(n, in)
		case *ast.SelectStmt:
			c.scoped(in, 3, n, "select", whyConc+"engine.Select")
			for _, s := range n.Body.List {
				c.markComm(s)
			}
		case *ast.UnaryExpr:
			if n.Op == token.ARROW && !c.comms[n] {
				c.scoped(in, 3, n, "a receive from a channel", whyConc+"a future or a signal")
			}
		case *ast.LabeledStmt:
			c.labels[n.Stmt] = n.Label.Name
		case *ast.RangeStmt:
			c.ranges(n, in)
		case *ast.AssignStmt:
			c.assigns(n, in)
		case *ast.IncDecStmt:
			c.assign(n.X, in, true)
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				c.compares(n, n.Op.String(), n.X, n.Y, in)
			}
		case *ast.SwitchStmt:
			c.switches(n, in)
		case *ast.ValueSpec:
			c.specified(n, in)
		case *ast.CompositeLit:
			c.composite(n, in)
		case *ast.ChanType:
			if k := keeps(c.info.TypeOf(n.Value)); k != "" {
				c.wrong(in, 9, n, "a channel of "+c.typeText(n.Value)+" keeps "+k, whyKept)
			}
		case *ast.SelectorExpr:
			c.recvs[n.Sel] = n.X
			if s := c.info.Selections[n]; s != nil && s.Kind() == types.FieldVal {
				if id, ok := ast.Unparen(n.X).(*ast.Ident); ok {
					c.selected[id] = true
				}
			}
		case *ast.Ident:
			c.ident(n, in)
		}
		return true
	})
}

// typeText is a type as it is written in this package.
func (c *checker) typeText(e ast.Expr) string {
	return types.TypeString(c.info.TypeOf(e), func(p *types.Package) string {
		if p == c.pass.Pkg {
			return ""
		}
		return p.Name()
	})
}

func (c *checker) markComm(s ast.Stmt) {
	clause, ok := s.(*ast.CommClause)
	if !ok || clause.Comm == nil {
		return
	}
	ast.Inspect(clause.Comm, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.SendStmt, *ast.UnaryExpr:
			c.comms[n] = true
		}
		return true
	})
}

// literal walks a literal, as a part of the function that it is in or as one of its own.
func (c *checker) literal(lit *ast.FuncLit, in *function) {
	s, ok := c.info.TypeOf(lit).(*types.Signature)
	if !ok {
		return
	}
	f := &function{name: in.name, lit: lit, node: lit, outer: in}
	role := c.roles[lit]
	switch {
	case takesRun(s) || role == workflow:
		f.kind = workflow
	case worksOutside(s) || role == outside:
		f.kind = outside
	case role == goroutine:
		f.kind = goroutine
	default:
		init, once := in.init, in.once
		in.init, in.once = init && c.atOnce[lit], once && c.atOnce[lit] || c.once[lit]
		c.walk(lit.Type, in)
		c.walk(lit.Body, in)
		in.init, in.once = init, once
		return
	}
	c.all = append(c.all, f)
	c.walk(lit.Type, f)
	c.walk(lit.Body, f)
}

func (c *checker) goes(n *ast.GoStmt, in *function) {
	c.scoped(in, 3, n, "a go statement", whyConc+useBranches)
	c.goroutine(n.Call.Fun)
	for _, arg := range n.Call.Args {
		if isRun(c.info.TypeOf(arg)) {
			c.wrong(in, 8, arg, "a Run is given to a goroutine", whyForeign)
		}
	}
}

func (c *checker) goroutine(e ast.Expr) {
	if lit, ok := ast.Unparen(e).(*ast.FuncLit); ok {
		c.roles[lit] = goroutine
	} else if id := funcIdent(e); id != nil {
		c.refs[id] = true
	}
}

// funcIdent is the identifier of a function in f, p.f, x.f or f[T].
func funcIdent(e ast.Expr) *ast.Ident {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e
	case *ast.SelectorExpr:
		return e.Sel
	case *ast.IndexExpr:
		return funcIdent(e.X)
	case *ast.IndexListExpr:
		return funcIdent(e.X)
	}
	return nil
}

// startsGoroutine are the functions that call an argument in another goroutine.
var startsGoroutine = map[string]int{
	"sync.WaitGroup.Go": 0, "errgroup.Group.Go": 0, "errgroup.Group.TryGo": 0, "time.AfterFunc": 1, "context.AfterFunc": 1,
}

// callsAtOnce are the packages whose functions call an argument before they return.
var callsAtOnce = map[string]bool{
	"bytes": true, "io/fs": true, "maps": true, "path/filepath": true, "slices": true, "sort": true, "strings": true,
}

// lazily are the functions that call their argument once.
var lazily = map[string]bool{"sync.Once.Do": true, "sync.OnceFunc": true, "sync.OnceValue": true, "sync.OnceValues": true}

// mutators are methods that change what they are called on, by package and type.
var mutators = map[string]string{
	"strings.Builder": "Write WriteByte WriteRune WriteString Reset",
	"bytes.Buffer":    "Write WriteByte WriteRune WriteString Reset ReadFrom Truncate",
	"sync.Map":        "Store LoadOrStore LoadAndDelete Delete Swap CompareAndSwap CompareAndDelete Clear",
	"atomic":          "Store Add Swap CompareAndSwap And Or",
	"list.List":       "PushBack PushFront InsertBefore InsertAfter Remove Init",
}

// call says what its arguments are called as, before the walk comes to them.
func (c *checker) call(n *ast.CallExpr, in *function) {
	if id := funcIdent(n.Fun); id != nil {
		c.called[id] = n
	}
	if lit, ok := ast.Unparen(n.Fun).(*ast.FuncLit); ok {
		c.atOnce[lit] = true
	}
	f := c.callee(n)
	if f == nil {
		c.builtin(n, in)
	}
	for i, arg := range n.Args {
		lit, isLit := ast.Unparen(arg).(*ast.FuncLit)
		if isLit && f != nil && f.Pkg() != nil && callsAtOnce[f.Pkg().Path()] {
			c.atOnce[lit] = true
		}
		id := funcIdent(arg)
		if c.givesToStep(n, i) {
			if isLit {
				c.roles[lit] = outside
			} else if id != nil {
				c.refs[id] = true
			}
		}
		// What has the address of a variable may write it.
		if u, ok := ast.Unparen(arg).(*ast.UnaryExpr); ok && u.Op == token.AND && !isDefinition(c.info.TypeOf(u.X)) {
			c.assign(u.X, in, false)
		}
	}
	if f == nil || f.Pkg() == nil {
		return
	}
	full := f.Pkg().Name() + "." + f.Name()
	recv := receiver(f)
	if recv != "" {
		full = f.Pkg().Name() + "." + recv + "." + f.Name()
	}
	if i, ok := startsGoroutine[full]; ok && i < len(n.Args) {
		c.goroutine(n.Args[i])
	}
	if isSyncRange(f) && c.begins(n.Args[0]) {
		c.scoped(in, 4, n, rangeBegins, whyOrder)
	}
	if lazily[full] && len(n.Args) == 1 {
		if lit, ok := ast.Unparen(n.Args[0]).(*ast.FuncLit); ok {
			c.once[lit] = true
		}
	}
	if recv != "" {
		of := f.Pkg().Name() + "." + recv
		if f.Pkg().Path() == "sync/atomic" {
			of = "atomic"
		}
		if methods, ok := mutators[of]; ok && strings.Contains(" "+methods+" ", " "+f.Name()+" ") {
			if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok {
				c.assign(sel.X, in, false)
			}
		}
	}
	if inLibrary(f.Pkg().Path()) && recv == "" && f.Name() == "Map" && len(n.Args) > 2 {
		ast.Inspect(n.Args[2], func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				c.limits[id] = true
			}
			return true
		})
	}
	c.operation(n, f, in)
}

// builtin handles the builtin functions that write or close.
func (c *checker) builtin(n *ast.CallExpr, in *function) {
	id, ok := ast.Unparen(n.Fun).(*ast.Ident)
	if !ok || len(n.Args) == 0 {
		return
	}
	if _, ok := c.info.Uses[id].(*types.Builtin); !ok {
		return
	}
	switch id.Name {
	case "close":
		c.scoped(in, 3, n, "close of a channel", whyConc+"a future or a signal")
	case "delete", "clear", "copy":
		c.assign(n.Args[0], in, false)
	}
}

func (c *checker) ident(id *ast.Ident, in *function) {
	switch o := c.info.Uses[id].(type) {
	case *types.Func:
		c.function(id, o.Origin(), in)
	case *types.Var:
		o = o.Origin()
		if r, name, bad := ruleOf(o); bad {
			c.scoped(in, r.code, id, name, r.why)
		}
		if packageLevel(o) {
			if isGenerator(o.Type()) && !in.init {
				c.scoped(in, 2, id, "the generator "+o.Name(), whyShared)
			}
			if (in.kind == workflow || in.kind == free) && !c.limits[id] {
				in.vars = append(in.vars, use{o, id.Pos()})
			}
			return
		}
		if c.usesWeft {
			c.reads[o] = append(c.reads[o], read{id, in})
		}
		c.foreign(id, o, in)
	}
}

// function handles the use of a function: a call, or a value.
func (c *checker) function(id *ast.Ident, f *types.Func, in *function) {
	if r, name, bad := ruleOf(f); bad {
		if !c.refs[id] {
			c.scoped(in, r.code, id, name, r.why)
		}
		return
	}
	if f.Pkg() == nil || inLibrary(f.Pkg().Path()) {
		return
	}
	// What is given to a step, an activity or a goroutine is not called here.
	call := call{fn: f, pos: id.Pos(), recv: c.recvs[id], expr: c.called[id]}
	call.given = c.refs[id] || call.expr == nil && worksOutside(f.Signature())
	in.calls = append(in.calls, call)
}
