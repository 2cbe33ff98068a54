package run

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/limits"
	"github.com/weft-go/weft/internal/lock"
	"github.com/weft-go/weft/internal/told"
	"github.com/weft-go/weft/signal"
)

// A Host has what the runs of one engine share.
type Host struct {
	Env
	Gate   *limits.Gate  // for attempts
	limits limits.Limits // of activities and scopes, for attempts
	Peers  Peers

	// ArchiveLife hands the present life of a run, up to the checkpoint head, to Config.Archive. refused
	// is why that has not taken it; err is why the life could not be read. nil: lives are not archived.
	ArchiveLife func(ctx context.Context, wf *journal.Workflow, head uint64) (refused, err error)

	mu         lock.Mutex
	changed    told.Set                       // runs for which a changed input was reported, by generation
	activities map[string]activity.Definition // of the configuration, and those that runs have called, by name
}

// An Owner is the incarnation of an engine that owns a run, as the run sees it.
type Owner interface {
	Name() string             // of the incarnation
	Context() context.Context // ends when everything must stop immediately
	Shared() bool             // several processes use the store

	// Least returns the lowest number that a claim may have.
	Least() uint64

	// Launch executes a run that it has claimed or started. CarryOn continues an execution
	// in the calling goroutine, which becomes its driver.
	Launch(x *Execution)
	CarryOn(x *Execution, drive func() error)

	// BeginStart keeps the owner from claiming a run that is being started, until over is called.
	BeginStart(id string) (over func())

	// Unsure returns a function that reports commits of unknown outcome.
	Unsure(what, id string) func(error)

	// Doubt has the owner look at a run that it may own and does not execute. DoubtStart may do so for one whose start failed.
	Doubt(id string)
	DoubtStart(id string)

	// Fenced reports that a commit for a run was refused, because the run is not the owner's.
	Fenced(id string)

	// Raise makes the numbers of later claims higher than that of a lost head. Rewound also
	// has the run claimed again, after the store has lost its head.
	Raise(lost *journal.Hold)
	Rewound(id string, lost *journal.Hold)

	// ProbationEnded reports that suspects need not wait for x any longer.
	ProbationEnded(x *Execution)

	// Interrupted reports that attempts were cut off.
	Interrupted()

	// Stored notifies those who wait for a value of a run, or for the answer to an update.
	Stored(id string)

	// PokeNow has the owner look for work now.
	PokeNow()

	// NoteTime compares the clocks, so that a jump is noticed.
	NoteTime()

	// Ahead returns by how much the entry of a run that the owner releases is backdated, so
	// that another engine may claim the run at once.
	Ahead() time.Duration

	// DoubtsClock reports whether the owner's clock may be ahead by so much that an entry with its time would be found late.
	DoubtsClock() bool
}

// Peers is what a run asks of its engine about other runs.
type Peers interface {
	// Takes reports whether the engine may execute wf and has room for it.
	Takes(wf *journal.Workflow) bool

	// Crowded reports whether runs that only wait are to leave memory at once.
	Crowded() bool

	// Drives reports whether the engine executes wf for its owner.
	Drives(wf *journal.Workflow) bool

	// Hint tells the execution of wf that something was written for it, or has the engine look for wf.
	Hint(wf *journal.Workflow, what Message)

	// PokePoll has the engine look for work now.
	PokePoll()

	// RequestCancel requests the cancellation of a workflow, if it is a child of parent.
	RequestCancel(ctx context.Context, id string, parent *journal.Parent, by weft.Actor) error

	// Send sends a signal that was checked and encoded.
	Send(ctx context.Context, in *acceptance.Incoming) (signal.Accepted, error)
}

// NewHost returns a host without peers. The caller sets them before any run is executed.
func NewHost(e Env, gate *limits.Gate) *Host {
	h := &Host{Env: e, Gate: gate, activities: map[string]activity.Definition{}}
	for _, a := range e.Activities {
		h.activities[a.Title()] = a
	}
	return h
}

// mostActivities is how many activities a host knows. There are more only if their names are made at run time.
const mostActivities = 10_000

// know notes that a run of this engine calls a. It returns a *activity.DefinitionError if the
// engine knows an activity of this name that has other types.
func (e *Host) know(a activity.Definition) error {
	e.mu.Lock()
	first, known := e.activities[a.Title()]
	if !known && len(e.activities) < mostActivities {
		e.activities[a.Title()] = a
	}
	e.mu.Unlock()
	if known && reflect.TypeOf(first) != reflect.TypeOf(a) {
		return &activity.DefinitionError{Activity: a.Title(), Field: "Name", Problem: fmt.Sprintf("belongs to two activities of this engine, a %T and a %T: give one another name", first, a)}
	}
	return nil
}

// Known returns the activity with a name, or nil if this engine does not know it.
func (e *Host) Known(name string) activity.Definition {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.activities[name]
}
