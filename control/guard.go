package control

// A Guard refuses to serve a process that was set up for another world.
type Guard struct {
	Mode          string // "remote", or anything else: the guard does not hold
	TargetWorld   string
	ExpectedWorld string
	Strict        bool
}
