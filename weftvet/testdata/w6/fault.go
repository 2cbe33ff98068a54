// Package w6 uses package variables that change.
package w6

import (
	"encoding/json"
	"flag"
	"net/http"
	"sync"
	"sync/atomic"

	"example.com/corpus/shared"
	"github.com/weft-go/weft/engine"
)

var (
	limit    = 10
	counter  int
	settings struct{ Fast bool }
	registry = map[string]int{}
	config   struct{ Region string }
	hits     atomic.Int64
	current  *struct{ n int }
)

// Somewhere else in the program.
func configure(b []byte) error {
	limit = 20
	settings.Fast = true
	registry["a"] = 1
	hits.Add(1)
	current.n = 3
	return json.Unmarshal(b, &config)
}

func reads(run *engine.Run) int {
	return limit // want `the package variable limit, which is written at fault.go:\d+, in workflow code: a replay may find another value; pass the value to the workflow, or read it in an engine.Step \(W6\)`
}

func counts(run *engine.Run) {
	counter++ // want `the package variable counter, which is written at`
}

func field(run *engine.Run) bool {
	return settings.Fast // want `the package variable settings`
}

func element(run *engine.Run) int {
	return registry["a"] // want `the package variable registry`
}

func decoded(run *engine.Run) string {
	return config.Region // want `the package variable config`
}

func atomically(run *engine.Run) int64 {
	return hits.Load() // want `the package variable hits`
}

func throughPointer(run *engine.Run) int {
	return current.n // want `the package variable current`
}

func ofAnother(run *engine.Run) int {
	return shared.Limit // want `the package variable shared.Limit, which is written at shared.go:\d+,`
}

func behindFunction(run *engine.Run) int {
	return shared.Get() // want `shared.Get, which uses the package variable Limit, which is written at shared.go:\d+ \(shared.go:\d+\), in workflow code`
}

func writes(run *engine.Run) {
	memo("a", 1)
}

var memos = map[string]int{}

func memo(k string, v int) {
	memos[k] = v // want `the package variable memos, .* in workflow code \(writes calls memo\)`
}

// A branch shares it with other runs.
func inBranch(run *engine.Run) ([]int, error) {
	return engine.Map(run, "m", 0, []int{1}, func(run *engine.Run, n int) (int, error) {
		return limit * n, nil // want `the package variable limit`
	})
}

var parallel = flag.Int("parallel", 4, "") // flag.Parse writes it

func flags(run *engine.Run) int {
	return *parallel // want `the package variable parallel`
}

// What a closure writes is written when somebody calls it, wherever it was made.
var (
	fee    = 10
	rate   = 10
	zone   = "eu"
	share  = 10
	reload = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { fee = 20 })
	serve  = &command{run: func(args []string) { zone = args[0] }}
	raise  = func() func() { return func() { share++ } }()
)

type command struct{ run func(args []string) }

func init() {
	http.HandleFunc("/rate", func(http.ResponseWriter, *http.Request) { rate++ })
	reset := func(http.ResponseWriter, *http.Request) { bonus = 0 }
	http.HandleFunc("/bonus", reset)
	setLevy := func(n int) { levy = n }
	setLevy(1)
	http.HandleFunc("/levy", func(http.ResponseWriter, *http.Request) { setLevy(2) })
	setToll := func(n int) { toll = n }
	go func() { setToll(2) }()
	setDuty := func(n int) { duty = n }
	later := func(http.ResponseWriter, *http.Request) { setDuty(2) }
	http.HandleFunc("/duty", later)
	setFine := func(n int) { fine = n }
	handlers["/fine"] = func() { setFine(2) }
	setTithe := func(n int) { tithe = n }
	go setTithe(2)
}

var bonus, levy, toll, duty, fine, tithe = 10, 10, 10, 10, 10, 10

var handlers = map[string]func(){}

func calledByANamedHandler(run *engine.Run) int {
	return duty // want `the package variable duty`
}

func calledByAHandlerInAMap(run *engine.Run) int {
	return fine // want `the package variable fine`
}

func calledAsAGoroutine(run *engine.Run) int {
	return tithe // want `the package variable tithe`
}

func calledByAHandler(run *engine.Run) int {
	return levy // want `the package variable levy`
}

func calledByAGoroutine(run *engine.Run) int {
	return toll // want `the package variable toll`
}

var (
	routes       sync.Once
	quota, price = 10, 10
)

// A handler that is registered once is called often.
func register() {
	routes.Do(func() {
		http.HandleFunc("/quota", func(http.ResponseWriter, *http.Request) { quota = 20 })
		go func() { price = 20 }()
	})
}

func registeredOnce(run *engine.Run) int {
	return quota // want `the package variable quota`
}

func startedOnce(run *engine.Run) int {
	return price // want `the package variable price`
}

func handler(run *engine.Run) int {
	return fee // want `the package variable fee`
}

func commandLine(run *engine.Run) string {
	return zone // want `the package variable zone`
}

func returned(run *engine.Run) int {
	return share // want `the package variable share`
}

func inInit(run *engine.Run) int {
	return rate // want `the package variable rate`
}

func named(run *engine.Run) int {
	return bonus // want `the package variable bonus`
}
