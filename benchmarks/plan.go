package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/weft-go/weft/internal/etcdtest"
)

// A plan is what is measured, and how often.
type plan struct {
	quick  bool
	size   Size
	rounds int
	only   []string
	dir    string // where directories of the run are made; "": for temporary files
	url    string // of a PostgreSQL server; "": a private one

	profiles string // the directory for profiles; "": none

	home     string // the directory of this run
	server   *server
	cluster  *etcdtest.Cluster
	prefixes int               // of stores in the cluster
	programs map[string]string // by build tag
	builds   []*debug.BuildInfo
	failed   []string
}

// A job is a workload of a peer on a store.
type job struct {
	peer     *Peer
	store    Store
	workload *Workload
}

func (j job) String() string { return j.peer.Name + "/" + j.store.Name + "/" + j.workload.Name }

// tasks are the jobs that were asked for.
func (p *plan) tasks() (jobs []job) {
	for _, peer := range peers {
		for _, s := range peer.Stores {
			for _, w := range peer.Workloads {
				if j := (job{peer, s, w}); p.wanted(j) && (w.Stores == nil || slices.Contains(w.Stores, s.Name)) {
					jobs = append(jobs, j)
				}
			}
		}
	}
	return jobs
}

func (p *plan) wanted(j job) bool {
	if len(p.only) == 0 {
		return j.peer.Tag == "" || !p.quick // to build it is not quick
	}
	name := strings.Split(j.String(), "/")
	return slices.ContainsFunc(p.only, func(filter string) bool {
		for i, pattern := range strings.Split(filter, "/") {
			if i >= len(name) {
				return false
			}
			if ok, _ := path.Match(strings.ToLower(pattern), name[i]); !ok {
				return false
			}
		}
		return true
	})
}

// A turn is what is measured of one store between two looks at its raw limits.
type turn struct{ limits, jobs []job }

// turns are the tasks by store. Raw limits are measured where anything else is.
func (p *plan) turns() []turn {
	byStore := map[string]*turn{}
	var order []string
	at := func(store string) *turn {
		if byStore[store] == nil {
			byStore[store] = &turn{}
			order = append(order, store)
		}
		return byStore[store]
	}
	for _, j := range p.tasks() {
		if j.peer != rawPeer {
			t := at(j.store.Name)
			t.jobs = append(t.jobs, j)
		} else if len(p.only) > 0 {
			at(j.store.Name)
		}
	}
	for _, s := range rawPeer.Stores {
		if t := byStore[s.Name]; t != nil {
			for _, w := range rawPeer.Workloads {
				t.limits = append(t.limits, job{rawPeer, s, w})
			}
		}
	}
	var turns []turn
	for _, store := range order {
		turns = append(turns, *byStore[store])
	}
	return turns
}

// run measures everything in turn. The order is another one in every round:
// stores are rotated, and their jobs reversed.
func (p *plan) run(ctx context.Context, add func(value)) (err error) {
	turns := p.turns()
	if len(turns) == 0 {
		return fmt.Errorf("nothing is called %s: see -list", strings.Join(p.only, ", "))
	}
	if p.dir != "" {
		if err := os.Setenv("TMPDIR", p.dir); err != nil { // also for the server
			return err
		}
	}
	if p.home, err = os.MkdirTemp("", "weft-benchmarks-"); err != nil {
		return err
	}
	defer os.RemoveAll(p.home)
	if err := p.build(ctx, turns); err != nil {
		return err
	}
	if slices.ContainsFunc(turns, func(t turn) bool { return uses(t, "etcd") }) {
		var stop func()
		if p.cluster, stop, err = etcdtest.Launch(etcdtest.Options{Members: 3, Sync: true, Direct: true}); err != nil {
			return fmt.Errorf("etcd: %w", err)
		}
		defer stop()
	}
	if slices.ContainsFunc(turns, func(t turn) bool { return uses(t, "postgres") }) {
		if p.server, err = startServer(ctx, p.url); err != nil {
			return fmt.Errorf("PostgreSQL: %w", err)
		}
		defer p.server.stop()
	}
	for round := range p.rounds {
		for i := range turns {
			t := turns[(i+round)%len(turns)]
			jobs := slices.Clone(t.jobs)
			if round%2 == 1 {
				slices.Reverse(jobs)
			}
			for _, j := range slices.Concat(t.limits, jobs, t.limits) {
				if most := j.peer.Rounds; most > 0 && round >= most {
					continue
				}
				if err := p.measure(ctx, round+1, j, add); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func uses(t turn, store string) bool {
	return slices.ContainsFunc(slices.Concat(t.limits, t.jobs), func(j job) bool { return j.store.Name == store })
}

// build makes the programs of the peers that this one does not have in it.
func (p *plan) build(ctx context.Context, turns []turn) error {
	p.programs = map[string]string{}
	for _, t := range turns {
		for _, j := range t.jobs {
			tag := j.peer.Tag
			if tag == "" || p.programs[tag] != "" || j.peer.Open != nil {
				continue
			}
			fmt.Fprintf(os.Stderr, "building with %s, which takes a while the first time\n", j.peer.Name)
			program := filepath.Join(p.home, "benchmarks-"+tag)
			c := exec.CommandContext(ctx, "go", "build", "-o", program, "-tags", tag, "github.com/weft-go/weft/benchmarks")
			c.Stdout, c.Stderr = os.Stderr, os.Stderr
			if err := c.Run(); err != nil {
				return fmt.Errorf("build with %s (leave it out with -only, or call this in its directory): %w", j.peer.Name, err)
			}
			p.programs[tag] = program
			if info, err := buildinfo.ReadFile(program); err == nil {
				p.builds = append(p.builds, info)
			}
		}
	}
	return nil
}

// patience is how long a part of a workload may take that says nothing else. What takes
// longer is given up, and missing in the table.
const patience = 3 * time.Minute

// measure measures one job, each part in a process of its own. That a job fails
// does not end the run.
func (p *plan) measure(ctx context.Context, round int, j job, add func(value)) error {
	began := time.Now()
	dir, err := os.MkdirTemp(p.home, "store-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	t := task{Peer: j.peer.Name, Store: j.store.Name, Workload: j.workload.Name, Volatile: j.store.Volatile, Dir: dir, Size: p.size, Patience: cmp.Or(j.workload.Patience, patience)}
	if j.store.Name == "postgres" {
		var drop func()
		if t.URL, drop, err = p.server.database(ctx); err != nil {
			return err
		}
		defer drop()
	}
	if j.store.Name == "etcd" {
		p.prefixes++
		t.URL = fmt.Sprintf("job%d/ %s", p.prefixes, strings.Join(p.cluster.Endpoints(), " "))
	}
	for part := range j.workload.Parts {
		if part > 0 && j.store.Volatile {
			break
		}
		t.Part = part
		if p.profiles != "" {
			t.Profile = filepath.Join(p.profiles, fmt.Sprintf("%s-%d-%d", strings.ReplaceAll(j.String(), "/", "-"), part+1, round))
		}
		err := p.process(ctx, t, j.peer.Tag, func(s Sample) {
			add(value{Peer: t.Peer, Store: t.Store, Mode: j.store.Mode, Workload: t.Workload, Metric: s.Metric, Value: s.Value, Run: round})
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "round %d: %s, part %d: %v\n", round, j, part+1, err)
			p.failed = append(p.failed, fmt.Sprintf("%s in round %d: %v", j, round, err))
			break
		}
	}
	fmt.Fprintf(os.Stderr, "round %d of %d: %s: %.1f s\n", round, p.rounds, j, time.Since(began).Seconds())
	return nil
}

// process measures a task in a process of its own.
func (p *plan) process(ctx context.Context, t task, tag string, add func(Sample)) error {
	ctx, cancel := context.WithTimeout(ctx, t.Patience)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	argument, err := json.Marshal(t)
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, cmp.Or(p.programs[tag], self), "child", string(argument))
	var out, complaints bytes.Buffer
	c.Stdout, c.Stderr = &out, io.MultiWriter(os.Stderr, &complaints)
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("not done within %v", t.Patience)
		}
		return fmt.Errorf("%w: %s", err, lastLine(complaints.String()))
	}
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var s Sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("unexpected output %q: %w", lines.Text(), err)
		}
		add(s)
	}
	return nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
