// Package generic has what a walk along types or calls may never finish: types and functions
// that use themselves, also with new arguments, and templates, whose code is full of such.
package generic

import (
	"context"
	html "html/template"
	"iter"
	"strings"
	"text/template"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/future"
)

type node[T any] struct {
	value       T
	left, right *node[T]
}

type pair[A, B any] struct {
	a     A
	swap  *pair[B, A]
	inner *tree[pair[A, B]]
}

type tree[T any] struct {
	children []tree[T]
	value    T
}

type self interface{ me() self }

type builder[B builder[B]] interface{ with(string) B }

type linked struct {
	next *linked
	byID map[string][]*linked
}

func walk[T any](run *engine.Run, n *node[T], f func(*engine.Run, T) error) error {
	if n == nil {
		return nil
	}
	if err := walk(run, n.left, f); err != nil {
		return err
	}
	if err := f(run, n.value); err != nil {
		return err
	}
	return walk(run, n.right, f)
}

func even(n int) bool {
	if n == 0 {
		return true
	}
	return odd(n - 1)
}

func odd(n int) bool {
	if n == 0 {
		_ = time.Now() // want `time.Now in workflow code \(asks calls odd\)`
		return false
	}
	return even(n - 1)
}

func asks(run *engine.Run, n int) bool { return even(n) }

func mapAll[In, Out any](run *engine.Run, in []In, f func(*engine.Run, In) (Out, error)) ([]Out, error) {
	return engine.Map(run, "all", 0, in, f)
}

func sequence[T any](run *engine.Run, fs ...*future.Future[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, f := range fs {
			if !yield(f.Get(run)) {
				return
			}
		}
	}
}

func fix[T any](f func(func(T) T) func(T) T) func(T) T {
	return func(v T) T { return f(fix(f))(v) }
}

func recursiveClosure(run *engine.Run) error {
	var visit func(n int) error
	visit = func(n int) error {
		if n == 0 {
			return run.Sleep(1)
		}
		return visit(n - 1)
	}
	return visit(3)
}

func recursiveClosures(run *engine.Run, n *node[int]) (sum int) {
	var left, right func(n *node[int])
	left = func(n *node[int]) {
		if n != nil {
			sum += n.value
			right(n.left)
		}
	}
	right = func(n *node[int]) {
		if n != nil {
			left(n.right)
		}
	}
	left(n)
	return sum
}

var texts = template.Must(template.New("t").Parse(`{{define "a"}}{{template "a" .}}{{end}}{{.}}`))

func renders(run *engine.Run, v any) (string, error) {
	var b strings.Builder
	if err := texts.Execute(&b, v); err != nil {
		return "", err
	}
	err := html.Must(html.New("h").Parse("{{.}}")).Execute(&b, v)
	return b.String(), err
}

func rendersInStep(run *engine.Run, v any) (string, error) {
	return engine.Step(run, "render", func(context.Context) (string, error) {
		var b strings.Builder
		return b.String(), texts.Execute(&b, v)
	})
}

type visitor[T any, V visitor[T, V]] interface {
	visit(*engine.Run, T) V
}

func drive[T any, V visitor[T, V]](run *engine.Run, v V, list []T) V {
	for _, e := range list {
		v = v.visit(run, e)
	}
	return v
}

func constrained[K comparable, V any, M interface{ ~map[K]V }](run *engine.Run, m M) (n int) {
	for range m {
		n++
	}
	return n
}
