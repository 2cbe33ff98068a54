package weft

// Events are callbacks for metrics. Any of them may be nil. The engine's goroutines
// call them synchronously and concurrently. Do not use an id as the label of a metric:
// there are too many.
type Events struct {
	// Takeover: a run was claimed whose previous owner is dead or has stopped.
	Takeover func(TakeoverEvent)

	// LostRace: a claim was refused because another write came first.
	LostRace func(LostRaceEvent)

	// Fenced: a commit was refused, or abandoned, because the run has another
	// owner or has ended. Its contents are discarded.
	Fenced func(FencedEvent)

	// Unknown: the outcome of a commit is unknown. It is settled before anything
	// else happens to the run.
	Unknown func(UnknownEvent)

	// InputChanged: in a replay of the run, an operation was started with an input that
	// differs from the recorded one. Only the first such operation is reported. The run
	// continues. docs/guides/workflows.md describes what is compared. An engine usually
	// reports a run once.
	InputChanged func(InputChangedEvent)

	// Deposed: an incarnation has lost its lease and releases all its runs. The
	// engine continues as another incarnation.
	Deposed func(DeposedEvent)
}

// A TakeoverEvent: a run was claimed whose previous owner is dead or has stopped. From and To
// are incarnations: see EngineInfo.
type TakeoverEvent struct{ WorkflowID, From, To string }

// A LostRaceEvent: a claim was refused because another write came first.
type LostRaceEvent struct{ WorkflowID string }

// A FencedEvent: a commit was refused, or abandoned, because the run has another owner or has
// ended.
type FencedEvent struct{ WorkflowID string }

// An UnknownEvent: the outcome of a commit is unknown. The WorkflowID is empty if the commit
// belongs to no run.
type UnknownEvent struct{ WorkflowID string }

// An InputChangedEvent: a replay started an operation with another input than the recorded one.
type InputChangedEvent struct{ WorkflowID, Operation string }

// A DeposedEvent: an incarnation has lost its lease.
type DeposedEvent struct{ Incarnation string }
