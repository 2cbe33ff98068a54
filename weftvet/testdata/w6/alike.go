package w6

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"regexp"
	"strings"
	"sync"
	"testing/fstest"

	"example.com/corpus/shared"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
)

const maximum = 10

var (
	rates   = map[string]int{"eu": 20}
	pattern = regexp.MustCompile(`^a`)
	errFull = errors.New("full")

	charge = activity.Activity[int, int]{Name: "charge", Run: func(ctx context.Context, n int) (int, error) { return n, nil }}
	order  engine.Workflow[int, int]

	prices map[string]int
	lazily *regexp.Regexp
	once   sync.Once

	retries  = 3 // a test replaces it
	internal int // that no workflow reads
)

func init() {
	prices = map[string]int{"a": 1}
	prices["b"] = 2
	order = engine.Workflow[int, int]{Name: "order", Func: func(run *engine.Run, n int) (int, error) { return n, nil }}
}

var (
	a, b, c, d, e int
	initOnce      sync.Once
	setOnce       func()
)

// What init has called in its course is written before the program.
func init() {
	setA := func() { a = 1 }
	viaA := func() { setA() }
	viaA()
	setB := func() { b = 1 }
	initOnce.Do(func() { setB() })
	setC := func(n int) { c += n }
	for range strings.FieldsFuncSeq("1 2", func(r rune) bool { setC(1); return r == ' ' }) {
		defer func() { setC(2) }()
	}
	var setD func(int)
	setD = func(n int) {
		if d = n; n > 0 {
			setD(n - 1)
		}
	}
	setD(3)
	setE := func() { e = 1 }
	setOnce = sync.OnceFunc(func() { setE() })
}

func setInInit(run *engine.Run) int { return a + b + c + d + e }

func constant(run *engine.Run) int { return maximum }

func table(run *engine.Run) int { return rates["eu"] }

func compiled(run *engine.Run, s string) bool { return pattern.MatchString(s) }

func sentinel(run *engine.Run) error { return errFull }

func uses(run *engine.Run) (int, error) { return charge.Do(run, 1) }

// The address of a definition is taken to use it.
func defines() []engine.Definition { return append([]engine.Definition{&order}, definition(&order)) }

func definition(w *engine.Workflow[int, int]) engine.Definition { return w }

func childOf(run *engine.Run) (int, error) { return order.Do(run, 1) }

func initialised(run *engine.Run) int { return prices["a"] }

func compiledOnce(run *engine.Run, s string) bool {
	once.Do(func() { lazily = regexp.MustCompile("^b") })
	return lazily.MatchString(s)
}

func local(run *engine.Run) int {
	limit := 1
	limit++
	return limit
}

func shadowed(run *engine.Run, limit int) int { limit = 3; return limit }

func inStep(run *engine.Run) (int, error) {
	return engine.Step(run, "limit", func(context.Context) (int, error) { return limit, nil })
}

func ofOther(run *engine.Run) string { return shared.Regions[0] }

func replaced(run *engine.Run) int { return retries }

func client() int {
	internal++
	return internal + limit
}

// The pointer is only read.
func marshals(run *engine.Run) ([]byte, error) { return json.Marshal(rates) }

// The limit of a Map is no part of the history.
func atOnce(run *engine.Run, in []int) ([]int, error) {
	return engine.Map(run, "m", *parallel, in, func(_ *engine.Run, n int) (int, error) { return n, nil })
}

// Closures that are called before the program begins, or once before the variable is used.
var (
	sizes = map[string]int{}
	files = map[string]bool{}
	grid  [3]int
	names []string
	total int
	tree  int

	large = func() map[string]int { sizes["a"] = 1; return sizes }()
	load  = sync.OnceFunc(func() { names = []string{"a"} })
)

func init() {
	set := func(i, n int) { grid[i] = n }
	set(0, 1)
	defer set(1, 2)
	func() { total = 6 }()
	_ = fs.WalkDir(fstest.MapFS{}, ".", func(path string, _ fs.DirEntry, err error) error {
		files[path] = true
		return err
	})
	_ = strings.Map(func(r rune) rune { total++; return r }, "ab")
	var count func(n int)
	count = func(n int) {
		if tree += n; n > 0 {
			count(n - 1)
		}
	}
	count(3)
}

func calledInPlace(run *engine.Run) int { return large["a"] + sizes["a"] + total }

func calledByName(run *engine.Run) int { return grid[0] + tree }

func walked(run *engine.Run, path string) bool { return files[path] }

func loadedOnce(run *engine.Run) string {
	load()
	return names[0]
}

func loadedLater(run *engine.Run) int {
	square()
	return squares[2]
}

var (
	squares []int
	square  = loader()

	size, depth, width int
	dimensions         sync.Once
)

// What the literal calls itself is a part of it.
func measured(run *engine.Run) int {
	dimensions.Do(func() {
		func() { size = 1 }()
		set := func(n int) { depth = n }
		set(2)
		_ = strings.Map(func(r rune) rune { width++; return r }, "ab")
	})
	return size + depth + width
}

func loader() func() { return sync.OnceFunc(func() { squares = []int{0, 1, 4} }) }
