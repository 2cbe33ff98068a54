package weftvet

import (
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// weft is the module that this package knows.
const weft = "github.com/weft-go/weft"

// library are the top folders of Weft itself. Its code makes workflows and is none, and its
// tests do on purpose what is wrong.
var library = map[string]bool{
	"activity": true, "checkpoint": true, "engine": true, "enginetest": true, "fence": true,
	"future": true, "internal": true, "signal": true, "storage": true,
}

// clients are further top folders, whose functions act on a store or a server. Their code is analysed like the user's.
var clients = map[string]bool{"client": true, "control": true, "idempotency": true, "stream": true, "world": true}

func inLibrary(path string) bool {
	folder, ok := folderOf(path)
	return ok && (folder == "" || library[folder])
}

// ofWeft says that a package is in the library, or has clients.
func ofWeft(path string) bool {
	folder, _ := folderOf(path)
	return inLibrary(path) || clients[folder]
}

// folderOf returns the top folder of a package of Weft. It is "" for the package at the root.
func folderOf(path string) (folder string, ok bool) {
	path = strings.TrimSuffix(path, "_test")
	rest, ok := strings.CutPrefix(path, weft+"/")
	folder, _, _ = strings.Cut(rest, "/")
	if !ok {
		return "", path == weft
	}
	return folder, true
}

// ofUser says that a package is in a module of the user: one without a version, which is the
// main module or one of a workspace. Build systems that know no modules have the packages of
// others analysed like the user's.
func ofUser(pass *analysis.Pass) bool {
	path := pass.Pkg.Path()
	if inLibrary(path) {
		return false
	}
	m := pass.Module
	if m == nil || m.Path == "" {
		first, _, _ := strings.Cut(path, "/")
		return strings.Contains(first, ".") || first == "command-line-arguments"
	}
	if m.Version == "" {
		return m.Path != "std" && m.Path != "cmd"
	}
	for prefix := range strings.SplitSeq(modules, ",") {
		if prefix != "" && (m.Path == prefix || strings.HasPrefix(m.Path, strings.TrimSuffix(prefix, "/")+"/")) {
			return true
		}
	}
	return false
}

// importsWeft says that a package can have workflow code.
func importsWeft(p *types.Package) bool {
	seen := map[*types.Package]bool{}
	var visit func(p *types.Package) bool
	visit = func(p *types.Package) bool {
		if seen[p] {
			return false
		}
		seen[p] = true
		for _, i := range p.Imports() {
			if i.Path() == weft+"/engine" || i.Path() == weft+"/future" || visit(i) {
				return true
			}
		}
		return false
	}
	return visit(p)
}

// named returns the type behind aliases, and the path and name of its package.
func named(t types.Type) (n *types.Named, path, name string) {
	n, _ = types.Unalias(t).(*types.Named)
	if n == nil || n.Obj().Pkg() == nil {
		return n, "", ""
	}
	return n, n.Obj().Pkg().Path(), n.Obj().Name()
}

// isRun says that t is *engine.Run, or one of the interfaces Runner that it implements for the
// other packages.
func isRun(t types.Type) bool {
	if t == nil {
		return false
	}
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		_, path, name := named(p.Elem())
		return path == weft+"/engine" && name == "Run"
	}
	_, path, name := named(t)
	return name == "Runner" && ofWeft(path)
}

// isFuture says that t is what an operation that was started has as its outcome.
func isFuture(t types.Type) bool {
	if t == nil {
		return false
	}
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		_, path, name := named(p.Elem())
		return path == weft+"/future" && name == "Future"
	}
	_, path, name := named(t)
	return path == weft+"/future" && name == "Operation" || path == weft+"/engine" && name == "Case"
}

// keeps says what of a run a variable of type t keeps: "a Run", "a future" or nothing.
func keeps(t types.Type) string {
	return keepsIn(t, 0)
}

// A type may contain itself, also with new arguments each time: the depth ends that.
func keepsIn(t types.Type, depth int) string {
	switch {
	case t == nil || depth > 8:
		return ""
	case isRun(t):
		return "a Run"
	case isFuture(t):
		return "a future"
	}
	switch u := types.Unalias(t).(type) {
	case *types.Pointer:
		return keepsIn(u.Elem(), depth+1)
	case *types.Slice:
		return keepsIn(u.Elem(), depth+1)
	case *types.Array:
		return keepsIn(u.Elem(), depth+1)
	case *types.Chan:
		return keepsIn(u.Elem(), depth+1)
	case *types.Map:
		if k := keepsIn(u.Key(), depth+1); k != "" {
			return k
		}
		return keepsIn(u.Elem(), depth+1)
	case *types.Named:
		// engine.Run is the argument of sync/atomic.Pointer, without a pointer of its own.
		for arg := range u.TypeArgs().Types() {
			if k := keepsIn(arg, depth+1); k != "" {
				return k
			}
			if k := keepsIn(types.NewPointer(arg), depth+1); k != "" {
				return k
			}
		}
	}
	return ""
}

func isContext(t types.Type) bool {
	_, path, name := named(t)
	return path == "context" && name == "Context"
}

func isError(t types.Type) bool {
	return t != nil && types.Identical(types.Unalias(t), types.Universe.Lookup("error").Type())
}

func hasParam(s *types.Signature, is func(types.Type) bool) bool {
	for p := range s.Params().Variables() {
		if is(p.Type()) {
			return true
		}
	}
	return false
}

// takesRun says that a function is workflow code, or begins operations if it is of Weft.
func takesRun(s *types.Signature) bool { return hasParam(s, isRun) }

// worksOutside says that a function is given to a step or an activity: it has a context, and
// workflow code has none.
func worksOutside(s *types.Signature) bool { return hasParam(s, isContext) && !takesRun(s) }

// packageLevel says that v is a package variable.
func packageLevel(v *types.Var) bool {
	return v != nil && v.Pkg() != nil && !v.IsField() && v.Parent() == v.Pkg().Scope()
}
