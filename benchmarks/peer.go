package main

import (
	"context"
	"sync/atomic"
	"time"
)

// A Peer is something that is measured. To add one, write a file with its Peer,
// and name it in peers.
type Peer struct {
	Name string

	// Tag is a build tag of its file, if the program is built without it: so
	// that what one peer links weighs on no other's memory.
	Tag string

	Stores    []Store
	Workloads []*Workload

	// Rounds is in how many rounds it is measured at most, where it takes long.
	// Zero is all.
	Rounds int

	// Open begins to work on a store: a fresh one, or one that the same peer has
	// closed.
	Open func(ctx context.Context, s Site) (System, error)
}

// peers are all that is measured, in the order of the table's columns.
var peers = []*Peer{rawPeer, weftPeer, riverPeer, temporalPeer}

// A Store is where a peer keeps things, and how.
type Store struct {
	Name string
	Mode string // what its figures depend on: an option, or what it does not promise

	// Volatile says that it ends with the process: there is no restart on it.
	Volatile bool
}

// A System is an engine at work. Start and Signal return when what they did is
// durable.
type System interface {
	Start(ctx context.Context, id string, s Shape) error
	Signal(ctx context.Context, id string) error
	Wait(ctx context.Context, id string) error // for the end

	// Close stops it in good order. What is under way goes on when the store is
	// opened again.
	Close() error
}

// A Committer is a System that counts the batches that it commits.
type Committer interface{ Commits() int64 }

// A Shape is what a workflow does: activities one after the other, then
// activities side by side, then it waits for a signal. An activity calls
// Probe.Step and returns "done".
type Shape struct {
	Steps    int
	Busy     time.Duration // that each activity takes, from Probe.Step on
	Bytes    int           // of the result of each activity; 0: those of "done"
	Parallel int
	Signal   bool
}

// A Site is what a peer is given to work on.
type Site struct {
	Store string
	Dir   string // its own
	URL   string // where Store is "postgres", of a database of its own; where it is "etcd", a prefix of its own and the members
	Room  int    // how many runs, and activities, it has at a time; 0: its default
	Probe *Probe

	Recorded bool // what Weft has written is written to it: a raw store then has the tables of Weft's
}

// A Probe is told by workflow functions and activities how far they are: they
// run in the process that measures.
type Probe struct {
	entered, parked, steps atomic.Int64

	began time.Time
	marks []atomic.Int64 // nanoseconds since began at equal parts of every steps
	every int64
}

// Enter is called at the beginning of every workflow function.
func (p *Probe) Enter() { p.entered.Add(1) }

// Park is called before a workflow function waits for a signal.
func (p *Probe) Park() { p.parked.Add(1) }

// Step is called by every activity.
func (p *Probe) Step() {
	n := p.steps.Add(1)
	if p.every > 0 && n%p.every == 0 {
		if i := n/p.every - 1; i < int64(len(p.marks)) {
			p.marks[i].Store(int64(time.Since(p.began)))
		}
	}
}

// reset forgets all, and takes the time of parts of steps from now on.
func (p *Probe) reset(steps, parts int) {
	p.entered.Store(0)
	p.parked.Store(0)
	p.steps.Store(0)
	p.began = time.Now()
	p.marks = make([]atomic.Int64, parts)
	p.every = 0
	if parts > 0 {
		p.every = int64(steps / parts)
	}
}
