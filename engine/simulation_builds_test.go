package engine_test

import (
	"context"
	"slices"

	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/engine"
)

// builds says whether the hosts have different builds of the workflow: two with a change, and one without it. A
// third of the seeds play that.
func (s *simulation) builds() bool { return s.seed%3 == 1 }

// lastBuild has the newest version of the change.
const lastBuild = 2

// newest is the newest version of the change that the code of h has, 0 before the change. Clients have the last build.
func (s *simulation) newest(h *host) int {
	if h == nil {
		return lastBuild
	}
	return h.build
}

// draws returns the build of the nth host.
func (s *simulation) draws(n int) int {
	if !s.builds() || s.rolledOut {
		return lastBuild
	}
	return s.hash(lastBuild+1, "build", n)
}

// spell is where the builds differ: each version of the change has one step more than the one before.
func (s *simulation) spell(run *engine.Run, h *host, newest, v int) error {
	if newest == 0 {
		return nil
	}
	for n := range run.Version("spelling") {
		_, err := engine.Step(run, "spell", func(ctx context.Context) (int, error) { return s.plain(ctx, h, v+5000+1000*n) })
		if err != nil {
			return err
		}
	}
	return nil
}

// drives judges that o, which executes a run, has every version that the run goes by (VER-6).
func (l *laws) drives(o *opening, t *touched) {
	run := t.lawful
	if run.record == nil || run.record.Type != "work" || len(t.appended) == 0 || l.owners[run.record.Owner] != o {
		return
	}
	for _, c := range run.record.Versions {
		if c.Version > o.build {
			l.wrong("VER-6: %s executes %s, which goes by version %d of a change, and has %d", o.name, t.id, c.Version, o.build)
		}
	}
	for _, c := range t.appended {
		if run.older && slices.ContainsFunc(c.Events, func(e checkpoint.Event) bool { return e.Kind == checkpoint.KindVersioned }) {
			l.met("changed by a newer build")
			run.older = false
		}
	}
	if o.build == 0 {
		run.older = true
	}
}
