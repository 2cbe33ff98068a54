package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// A task is what one process measures.
type task struct {
	Peer, Store, Workload string
	Part                  int
	Volatile              bool
	Profile               string // beginning of the names of profiles; "": none
	Dir, URL              string
	Size                  Size
	Patience              time.Duration
	Share                 json.RawMessage `json:",omitempty"` // what this process does beside the one that measures; nil: it measures
}

// A Sample is a value that was measured.
type Sample struct {
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
}

// A Child is a process that measures one workload of one peer on one store.
type Child struct {
	Size
	task     task
	site     Site
	peer     *Peer
	probe    *Probe
	volatile bool // the store is in this process's memory
	report   func(metric string, value float64)
}

func runChild(ctx context.Context, argument string) error {
	var t task
	if err := json.Unmarshal([]byte(argument), &t); err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	done, err := profile(t.Profile)
	if err != nil {
		return err
	}
	defer done()
	return t.measure(ctx, func(metric string, value float64) {
		if err := out.Encode(Sample{metric, value}); err != nil {
			panic(err) // nobody hears what is measured
		}
	})
}

// measure measures in this process.
func (t task) measure(ctx context.Context, report func(metric string, value float64)) error {
	peer, workload, err := t.find()
	if err != nil {
		return err
	}
	probe := new(Probe)
	c := &Child{
		Size:     t.Size,
		task:     t,
		site:     Site{Store: t.Store, Dir: t.Dir, URL: t.URL, Probe: probe},
		peer:     peer,
		probe:    probe,
		volatile: t.Volatile,
		report:   report,
	}
	if t.Share != nil {
		return workload.Beside(ctx, c)
	}
	return workload.Parts[t.Part](ctx, c)
}

func (t task) find() (*Peer, *Workload, error) {
	for _, p := range peers {
		if p.Name != t.Peer {
			continue
		}
		i := slices.IndexFunc(p.Workloads, func(w *Workload) bool { return w.Name == t.Workload })
		if i < 0 || t.Part >= len(p.Workloads[i].Parts) {
			break
		}
		return p, p.Workloads[i], nil
	}
	return nil, nil, fmt.Errorf("nothing is called %s/%s, part %d", t.Peer, t.Workload, t.Part)
}

func (c *Child) open(ctx context.Context) (System, error) {
	if c.peer.Open == nil {
		return nil, errors.New(c.peer.Name + " cannot be opened in this build")
	}
	return c.peer.Open(ctx, c.site)
}
