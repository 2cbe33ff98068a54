package control

import (
	"fmt"
)

// expectedWorld is the target world that a Guard expects if it is not told another one.
const expectedWorld = "workflow-studio/world-remote"

// A Guard refuses to serve a process that was set up to run steps in another world: then work
// would arrive where nobody expects it.
type Guard struct {
	// Mode is remote if steps run elsewhere. In any other mode the guard does not hold.
	Mode string

	// TargetWorld is where the process sends its work, and ExpectedWorld where it should.
	// An empty ExpectedWorld is workflow-studio/world-remote.
	TargetWorld   string
	ExpectedWorld string

	// Strict has New refuse a TargetWorld that is not the expected one. Without it, hits are counted.
	Strict bool
}

// GuardFromEnv returns the Guard of an environment, such as os.LookupEnv:
//
//   - WORKFLOW_EXECUTION_MODE is its Mode;
//   - WORKFLOW_TARGET_WORLD is its TargetWorld;
//   - WORKFLOW_STUDIO_REMOTE_WORLD_TARGET is its ExpectedWorld;
//   - NODE_ENV=production or WORKFLOW_STRICT_REMOTE=1 make it Strict.
func GuardFromEnv(lookup func(name string) (string, bool)) *Guard {
	env := func(name string) string {
		value, _ := lookup(name)
		return value
	}
	return &Guard{
		Mode:          env("WORKFLOW_EXECUTION_MODE"),
		TargetWorld:   env("WORKFLOW_TARGET_WORLD"),
		ExpectedWorld: env("WORKFLOW_STUDIO_REMOTE_WORLD_TARGET"),
		Strict:        env("NODE_ENV") == "production" || env("WORKFLOW_STRICT_REMOTE") == "1",
	}
}

// A GuardError is returned by New if the process was set up for another world.
type GuardError struct{ TargetWorld, ExpectedWorld string }

func (e *GuardError) Error() string {
	return fmt.Sprintf("Remote execution guard failed: WORKFLOW_TARGET_WORLD must equal %q, but is %q. "+
		"Set it, or run in another WORKFLOW_EXECUTION_MODE than remote.", e.ExpectedWorld, e.TargetWorld)
}

// remote reports whether steps run elsewhere.
func (g *Guard) remote() bool { return g != nil && g.Mode == "remote" }

func (g *Guard) strict() bool { return g != nil && g.Strict }

func (g *Guard) expected() string {
	if g == nil || g.ExpectedWorld == "" {
		return expectedWorld
	}
	return g.ExpectedWorld
}

// check returns a *GuardError if the guard holds and is not satisfied.
func (g *Guard) check() error {
	if g.remote() && g.strict() && g.TargetWorld != g.expected() {
		return &GuardError{g.TargetWorld, g.expected()}
	}
	return nil
}
