package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weft-go/weft/idempotency"
)

// A desk hands out tasks to workers, and notes what they came to. It is the callers of the workers:
// what a worker has not answered when it is killed is asked for again.
type desk struct {
	options
	kinds []Kind
	began time.Time

	mu        sync.Mutex // guards the fields below
	random    *rand.Rand
	books     map[string]*book // by hash
	ready     []task
	next      int                      // number of the next refund
	tasks     int                      // ids given
	open      int                      // tasks without an answer, except for Resolve
	assigned  map[string]map[int]task  // by worker
	dead      map[string]bool          // workers
	came      map[string]chan struct{} // closed when the worker is ready
	traps     map[string]*trap         // by worker
	finishing bool
	progress  time.Time // when a caller was answered last
	counts    map[string]int
	hits      map[Kind]int // kills and stops that found a refund of the kind in flight, for certain
	wrong     []*book
}

// A book is what is known of one refund.
type book struct {
	kind   Kind
	refund Refund
	hash   string

	first     *receipt       // as a caller was told first
	told      int            // callers
	news      int            // of them that sealed it
	seals     map[uint64]int // confirmed by the store, by epoch
	claimed   uint64         // the highest epoch of a claim that was confirmed by the store
	resolving bool

	numbers []string       // of the refunds that the provider has made
	fence   uint64         // the provider refuses lower tokens
	tokens  map[int]uint64 // by attempt

	violations []string
	story      []string // what happened, for whoever has to find out why
}

// tell adds to the story of a refund.
func (d *desk) tell(b *book, format string, args ...any) {
	b.story = append(b.story, fmt.Sprintf("%v ", time.Since(d.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// A task is a call of one caller.
type task struct {
	ID      int
	Kind    Kind
	Refund  Refund
	Leaves  time.Duration // after which the caller leaves; 0: it stays
	Resolve bool          // it is an operator's task
	Other   bool          // another request under the same key
	Tries   int
}

// An outcome is what a task came to.
type outcome struct {
	Task      task
	Receipt   receipt
	Decision  idempotency.Decision
	Err       string
	Known     string // the text of the sentinel
	Witnessed []note
}

// A receipt is what all callers must be told of a refund.
type receipt struct {
	EffectID, Result    string
	Attempt             int
	FirstSeen, SealedAt int64
}

var errLeft = errors.New("the caller has left")

const (
	callers = 3    // of each refund
	mostNew = 1000 // tasks without an answer, beyond which no new refund begins
)

func newDesk(o options, kinds []Kind) *desk {
	return &desk{
		options: o, kinds: kinds, began: time.Now(), random: rand.New(rand.NewPCG(o.seed, 1)),
		books: map[string]*book{}, assigned: map[string]map[int]task{}, dead: map[string]bool{},
		came: map[string]chan struct{}{}, traps: map[string]*trap{}, counts: map[string]int{}, hits: map[Kind]int{},
	}
}

func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	worker := r.Header.Get("Worker")
	var c call
	switch r.URL.Path {
	case "/ready":
		d.mu.Lock()
		close(d.came[worker])
		d.mu.Unlock()
	case "/task":
		t, status := d.take(worker)
		w.WriteHeader(status)
		if status == http.StatusOK {
			_ = json.NewEncoder(w).Encode(t)
		}
	case "/outcome":
		var o outcome
		if decode(w, r, &o) {
			d.note(worker, o)
		}
	case "/refund":
		if decode(w, r, &c) {
			d.serveRefund(w, r, worker, c)
		}
	case "/find":
		if decode(w, r, &c) {
			d.serveFind(w, worker, c)
		}
	case "/inside":
		if decode(w, r, &c) {
			d.spring(worker, c.Kind, inside)
		}
	default:
		http.NotFound(w, r)
	}
}

func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	body, err := io.ReadAll(r.Body) // to its end: else a client that leaves is not noticed
	if err == nil {
		err = json.Unmarshal(body, v)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

// violate notes that something is wrong with a refund.
func (d *desk) violate(b *book, format string, args ...any) {
	if len(b.violations) == 0 {
		d.wrong = append(d.wrong, b)
	}
	b.violations = append(b.violations, fmt.Sprintf(format, args...))
}

// take gives a worker a task: one that waits, or the first of a new refund.
func (d *desk) take(worker string) (task, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.dead[worker] || d.finishing && d.open == 0:
		return task{}, http.StatusGone
	case len(d.ready) == 0 && (d.finishing || d.open >= mostNew):
		return task{}, http.StatusNoContent
	case len(d.ready) == 0:
		d.begin()
	}
	t := d.ready[0]
	d.ready = d.ready[1:]
	if d.assigned[worker] == nil {
		d.assigned[worker] = map[int]task{}
	}
	d.assigned[worker][t.ID] = t
	d.tell(d.books[key(t.Kind, t.Refund.N).Hash()], "%s gets task %d, leaves after %v", worker, t.ID, t.Leaves)
	return t, http.StatusOK
}

// begin begins a new refund: several callers ask for it at once. Some of them leave before long.
func (d *desk) begin() {
	n := d.next
	d.next++
	b := &book{kind: d.kinds[n%len(d.kinds)], refund: Refund{n, 100 + n}, seals: map[uint64]int{}, tokens: map[int]uint64{}}
	b.hash = key(b.kind, n).Hash()
	d.books[b.hash] = b
	for range callers {
		t := task{Kind: b.kind, Refund: b.refund}
		if d.random.IntN(8) == 0 {
			t.Leaves = time.Duration(1 + d.random.Int64N(int64(20*time.Millisecond)))
		}
		d.add(t)
	}
}

// add adds a task.
func (d *desk) add(t task) {
	d.tasks++
	t.ID = d.tasks
	d.ready = append(d.ready, t)
	if !t.Resolve {
		d.open++
	}
}

// later gives out a task again, after a while.
func (d *desk) later(t task) {
	t.Tries++
	t.Leaves = 0
	time.AfterFunc(min(20*time.Millisecond<<min(t.Tries, 10), time.Second), func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ready = append(d.ready, t)
	})
}

// bury notes that a worker was killed, and gives its tasks to others.
func (d *desk) bury(worker string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(d.assigned[worker])) {
		t := d.assigned[worker][id]
		d.tell(d.books[key(t.Kind, t.Refund.N).Hash()], "%s is killed, at task %d", worker, id)
		d.later(t)
	}
	delete(d.assigned, worker)
}

// note notes what a task came to.
func (d *desk) note(worker string, o outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range o.Witnessed {
		d.witnessed(n)
	}
	if d.dead[worker] {
		return // the caller did not hear of it
	}
	t := o.Task
	delete(d.assigned[worker], t.ID)
	b := d.books[key(t.Kind, t.Refund.N).Hash()]
	d.tell(b, "%s answers task %d: %q %s", worker, t.ID, o.Decision, o.Err)
	switch {
	case t.Resolve:
		b.resolving = false
		if o.Err == "" {
			d.counts["resolved"]++
		}
		return // whoever needs it asks again
	case t.Other && o.Known == idempotency.ErrConflict.Error():
		d.counts["conflicts"]++
		d.open--
	case t.Other && o.Known == "" && o.Decision == "" && o.Err != "": // of the store, which was busy, for example
		d.unanswered(b, o)
	case t.Other || o.Known == idempotency.ErrConflict.Error():
		d.violate(b, "another request was answered %q %s, the same one was not: %v", o.Decision, o.Err, t.Other)
		d.open--
	case o.Err == "":
		d.answered(b, o)
	default:
		d.unanswered(b, o)
	}
}

// witnessed notes what the store has confirmed to a worker.
func (d *desk) witnessed(n note) {
	b := d.books[n.Hash]
	switch idempotency.State(n.State) {
	case idempotency.StateInProgress:
		b.claimed = max(b.claimed, n.Epoch)
	case idempotency.StateSealed:
		b.seals[n.Epoch]++
	}
}

// answered compares what a caller was told with what the others were told.
func (d *desk) answered(b *book, o outcome) {
	d.open--
	d.progress = time.Now()
	d.counts["answers"]++
	if o.Decision == idempotency.DecidedNew {
		b.news++
	}
	b.told++
	if b.first == nil {
		b.first = &o.Receipt
		if b.refund.N%8 == 0 {
			other := b.refund
			other.Cents++
			d.add(task{Kind: b.kind, Refund: other, Other: true})
		}
	}
	if *b.first != o.Receipt {
		d.violate(b, "one caller was told %+v, another one %+v", *b.first, o.Receipt)
	}
	if o.Receipt.EffectID == "" || o.Receipt.SealedAt <= 0 || b.kind != inTx && !slices.Contains(b.numbers, o.Receipt.Result) {
		d.violate(b, "a caller was told %+v, the provider has made %v", o.Receipt, b.numbers)
	}
}

// unanswered has the caller ask again.
func (d *desk) unanswered(b *book, o outcome) {
	what := o.Known
	if what == "" {
		what = "other errors"
		if o.Decision != "" {
			what = string(o.Decision)
		} else if d.counts[what] < 3 {
			d.counts["  "+o.Err]++
		}
	}
	d.counts[what]++
	if o.Known == idempotency.ErrIndeterminate.Error() && b.kind == held && !b.resolving {
		b.resolving = true
		d.add(task{Kind: b.kind, Refund: b.refund, Resolve: true})
	}
	d.later(o.Task)
}
