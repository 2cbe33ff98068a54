package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// An EngineInfo tells of one incarnation: one run of one engine.
type EngineInfo struct {
	Incarnation string // its Config.Name, and what tells it from all others
	Name        string
	Deployment  string   // its Config.Deployment
	Workflows   []string // the types that it runs
	Queues      []string // that it serves, besides what waits in none

	// Alive is false if it has stopped, or others found it dead. On a Shared store
	// that takes LeaseTTL and an engine that runs; if none does, nobody finds out.
	Alive    bool
	LeaseTTL time.Duration // zero: this store needs no leases
	Runs     int           // that it owns

	Since   time.Time
	Stopped time.Time // zero: it has not stopped, or died without a word

	// How often it claimed a run from another incarnation, came late with a claim,
	// was refused a commit because the run was not its own any more, and did not know
	// what became of a commit. Those of another engine are as of its last renewal.
	Takeovers, LostRaces, Fenced, Unknown uint64
}

// Engines tells of the incarnations that work on the store, and of those that did
// lately or still own something, the oldest first. Those whose record is damaged are
// named by the error, which comes with the others.
func (e *Engine) Engines(ctx context.Context) ([]EngineInfo, error) {
	if err := e.refused(); err != nil {
		return nil, err
	}
	infos := map[string]*EngineInfo{}
	var damaged []error
	for entry, err := range storage.All(ctx, e.store, keys.Engines()) {
		if err != nil {
			return nil, err
		}
		info, err := e.engineInfo(entry)
		if err != nil {
			damaged = append(damaged, err)
			continue
		}
		infos[info.Incarnation] = &info
	}
	for entry, err := range storage.All(ctx, e.store, keys.HeldAfter("")) {
		if err != nil {
			return nil, err
		}
		owner, err := keys.Incarnation(entry.Key)
		if err != nil {
			return nil, err
		}
		if infos[owner] == nil {
			infos[owner] = &EngineInfo{Incarnation: owner}
		}
		infos[owner].Runs++
	}
	var all []EngineInfo
	for _, info := range infos {
		all = append(all, *info)
	}
	slices.SortFunc(all, func(a, b EngineInfo) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	return all, errors.Join(damaged...)
}

func (e *Engine) engineInfo(entry storage.Entry) (EngineInfo, error) {
	incarnation, err := keys.Last(entry.Key)
	if err != nil {
		return EngineInfo{}, err
	}
	r, err := openRegistration(entry.Key, entry.Value)
	if err != nil {
		return EngineInfo{}, err
	}
	alive := r.Stopped == 0 && !r.Dead && r.Opening == opening(e.config.Storage) && e.config.Ownership == CASRequired
	if l := e.living(incarnation); l != nil {
		alive = true
		r.count(&l.counts)
	}
	return EngineInfo{
		Incarnation: incarnation,
		Name:        r.Name,
		Deployment:  r.Deployment,
		Workflows:   r.Workflows,
		Queues:      r.Queues,
		Alive:       alive,
		LeaseTTL:    saturate.Times(r.TTL, time.Microsecond),
		Since:       checkpoint.Time(r.Since),
		Stopped:     checkpoint.Time(r.Stopped),
		Takeovers:   r.Takeovers,
		LostRaces:   r.LostRaces,
		Fenced:      r.Fenced,
		Unknown:     r.Unknown,
	}, nil
}

// A roster is who lives, as it was when it was first asked.
type roster struct {
	eng   *Engine
	read  bool
	alive []EngineInfo
}

// missing says that no engine of a deployment that has a workflow lives; "" if one does.
func (r *roster) missing(ctx context.Context, deployment, workflow string) (string, error) {
	if !r.read {
		for entry, err := range storage.All(ctx, r.eng.store, keys.Engines()) {
			if err != nil {
				return "", err
			}
			if info, err := r.eng.engineInfo(entry); err == nil && info.Alive {
				r.alive = append(r.alive, info)
			}
		}
		r.read = true
	}
	for _, i := range r.alive {
		if i.Deployment == deployment && slices.Contains(i.Workflows, workflow) {
			return "", nil
		}
	}
	return fmt.Sprintf("no engine of deployment %q is alive that has it", deployment), nil
}

// missingActive is missing for the deployment that is active.
func (r *roster) missingActive(ctx context.Context, workflow string) (string, error) {
	a, err := r.eng.active(ctx)
	switch {
	case record.Damaged(err):
		return err.Error(), nil
	case err != nil:
		return "", err
	case a.Deployment == "":
		return "no deployment is active", nil
	}
	return r.missing(ctx, a.Deployment, workflow)
}

// living is the life of e under way, if that is the incarnation.
func (e *Engine) living(incarnation string) *life {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.life != nil && e.life.incarnation == incarnation {
		return e.life
	}
	return nil
}

func (r *registration) count(c *counts) {
	r.Takeovers, r.LostRaces = c.takeovers.Load(), c.lostRaces.Load()
	r.Fenced, r.Unknown = c.fenced.Load(), c.unknown.Load()
}
