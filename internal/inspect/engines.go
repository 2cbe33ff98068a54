package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/membership"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/internal/run"
	"github.com/weft-go/weft/internal/saturate"
	"github.com/weft-go/weft/storage"
)

// Engines is Engine.Engines.
func (e *Reader) Engines(ctx context.Context) ([]weft.EngineInfo, error) {
	if err := e.Refused(); err != nil {
		return nil, err
	}
	infos := map[string]*weft.EngineInfo{}
	var damaged []error
	for entry, err := range storage.All(ctx, e.Store, keys.Engines()) {
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
	for entry, err := range storage.All(ctx, e.Store, keys.HeldAfter("")) {
		if err != nil {
			return nil, err
		}
		owner, err := keys.Incarnation(entry.Key)
		if err != nil {
			damaged = append(damaged, err)
			continue
		}
		if infos[owner] == nil {
			infos[owner] = &weft.EngineInfo{Incarnation: owner}
		}
		infos[owner].Runs++
	}
	var all []weft.EngineInfo
	for _, info := range infos {
		all = append(all, *info)
	}
	slices.SortFunc(all, func(a, b weft.EngineInfo) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	return all, errors.Join(damaged...)
}

// ActiveDeployment is Engine.ActiveDeployment.
func (e *Reader) ActiveDeployment(ctx context.Context) (string, error) {
	if err := e.Refused(); err != nil {
		return "", err
	}
	a, err := e.Active(ctx)
	if err == nil && a.Deployment == "" {
		err = weft.ErrNoActiveDeployment
	}
	return a.Deployment, err
}

func (e *Reader) engineInfo(entry storage.Entry) (weft.EngineInfo, error) {
	incarnation, err := keys.Last(entry.Key)
	if err != nil {
		return weft.EngineInfo{}, err
	}
	r, err := membership.OpenRegistration(entry.Key, entry.Value)
	if err != nil {
		return weft.EngineInfo{}, err
	}
	alive := r.Stopped == 0 && !r.Dead && r.Opening == e.Opening && e.Ownership == weft.OwnershipCASRequired
	if l := e.Living(incarnation); l != nil {
		alive = true
		l.Counts.Store(r)
	}
	var renewed time.Time
	if r.TTL != 0 {
		renewed = r.Last()
	}
	return weft.EngineInfo{
		Incarnation: incarnation,
		Name:        r.Name,
		Deployment:  r.Deployment,
		Workflows:   r.Workflows,
		Queues:      r.Queues,
		Versions:    r.Versions,
		Alive:       alive,
		LeaseTTL:    saturate.Times(r.TTL, time.Microsecond),
		Since:       journal.Time(r.Since),
		Stopped:     journal.Time(r.Stopped),
		Renewed:     renewed,
		Takeovers:   r.Takeovers,
		LostRaces:   r.LostRaces,
		Fenced:      r.Fenced,
		Unknown:     r.Unknown,
	}, nil
}

// A roster has the incarnations that were alive when it was first read. Several goroutines may use it.
type roster struct {
	eng *Reader

	turn  chan struct{} // a lock that may be held while the store is read, in virtual time too
	read  bool
	alive []weft.EngineInfo
	blind bool // the record of an engine is damaged, so it may be alive

	patience time.Duration // how long the drivers of busy runs are still waited for, all together
}

func (e *Reader) newRoster(patience time.Duration) *roster {
	return &roster{eng: e, turn: make(chan struct{}, 1), patience: patience}
}

// ask asks the driver of a run what the run waits for.
func (r *roster) ask(ctx context.Context, x *run.Execution) []string {
	r.turn <- struct{}{}
	patience := min(mostPatience, r.patience)
	<-r.turn
	began := time.Now()
	defer func() {
		r.turn <- struct{}{}
		r.patience -= min(time.Since(began), r.patience)
		<-r.turn
	}()
	return x.DescribeWaiting(ctx, patience)
}

// empty reports whether no engine is alive.
func (r *roster) empty(ctx context.Context) (bool, error) {
	if r.eng.IsRunning() {
		return false, nil
	}
	if err := r.look(ctx); err != nil {
		return false, err
	}
	return len(r.alive) == 0 && !r.blind, nil
}

// look reads the incarnations, once. Afterwards alive and blind do not change.
func (r *roster) look(ctx context.Context) error {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if r.read {
		return nil
	}
	for entry, err := range storage.All(ctx, r.eng.Store, keys.Engines()) {
		if err != nil {
			return err
		}
		info, err := r.eng.engineInfo(entry)
		switch {
		case err != nil:
			r.blind = true
		case info.Alive:
			r.alive = append(r.alive, info)
		}
	}
	r.read = true
	return nil
}

// missing returns "" if an engine of the deployment that can go on with wf is alive, and
// otherwise a text that says that none is.
func (r *roster) missing(ctx context.Context, deployment string, wf *journal.Workflow) (string, error) {
	if err := r.look(ctx); err != nil {
		return "", err
	}
	for _, i := range r.alive {
		if i.Deployment == deployment && goesOnWith(i, wf) {
			return "", nil
		}
	}
	return fmt.Sprintf("no engine of deployment %q is alive that has it%s", deployment, inVersions(wf)), nil
}

// goesOnWith reports whether an engine has the workflow wf, in the versions by which wf goes.
func goesOnWith(i weft.EngineInfo, wf *journal.Workflow) bool {
	def := run.Definition{Versions: i.Versions[wf.Type]}
	return slices.Contains(i.Workflows, wf.Type) && def.Unknown(wf) == nil
}

// inVersions names the versions by which wf goes.
func inVersions(wf *journal.Workflow) string {
	words := ""
	for _, c := range wf.Versions {
		words += fmt.Sprintf(", with version %d of the change %q", c.Version, c.Change)
	}
	return words
}

// missingAnywhere returns "" if an engine that can go on with wf may be alive, or none is alive, and
// otherwise a text that says that none has it.
func (r *roster) missingAnywhere(ctx context.Context, wf *journal.Workflow) (string, error) {
	err := r.look(ctx)
	has := func(i weft.EngineInfo) bool { return goesOnWith(i, wf) }
	if err != nil || r.blind || len(r.alive) == 0 || slices.ContainsFunc(r.alive, has) {
		return "", err
	}
	return "no engine that is alive has it" + inVersions(wf), nil
}

// missingActive is missing for the active deployment.
func (r *roster) missingActive(ctx context.Context, wf *journal.Workflow) (string, error) {
	a, err := r.eng.Active(ctx)
	switch {
	case record.Damaged(err):
		return err.Error(), nil
	case err != nil:
		return "", err
	case a.Deployment == "":
		return "no deployment is active", nil
	}
	return r.missing(ctx, a.Deployment, wf)
}
