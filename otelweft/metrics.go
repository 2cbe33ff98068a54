package otelweft

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weft-go/weft/engine"
)

// The attributes of metrics. None of them may be an id.
const (
	workflowKey  = attribute.Key("weft.workflow")
	queueKey     = attribute.Key("weft.queue")
	statusKey    = attribute.Key("weft.status")
	exitKey      = attribute.Key("weft.exit")
	kindKey      = attribute.Key("weft.kind")
	activityKey  = attribute.Key("weft.activity")
	phaseKey     = attribute.Key("weft.phase")
	outcomeKey   = attribute.Key("weft.outcome")
	causeKey     = attribute.Key("weft.cause")
	reasonKey    = attribute.Key("weft.reason")
	duplicateKey = attribute.Key("weft.duplicate")
)

// The boundaries of histograms.
var (
	short  = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	medium = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600}
	long   = []float64{0.01, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600, 30 * 24 * 3600}
	groups = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}
	counts = []float64{10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000}
	sizes  = []float64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}
)

type instruments struct {
	runStarts, runsRemoved            metric.Int64Counter
	runDuration, queueWait            metric.Float64Histogram
	executionsActive, attemptsActive  metric.Int64UpDownCounter
	executionDuration, replayDuration metric.Float64Histogram
	replayEvents                      metric.Int64Histogram
	attemptDuration                   metric.Float64Histogram
	retries                           metric.Int64Counter
	raised, cleared                   metric.Int64Counter
	signalsAccepted, signalsReceived  metric.Int64Counter
	commitDuration                    metric.Float64Histogram
	commitSize, commitGroup           metric.Int64Histogram
	takeovers, lostRaces, fenced      metric.Int64Counter
	inputChanges, leasesLost          metric.Int64Counter
}

// make makes the instruments.
func (i *instruments) make(m metric.Meter) error {
	var errs []error
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	active := func(name, unit, description string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	seconds := func(name, description string, boundaries []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(boundaries...))
		errs = append(errs, err)
		return h
	}
	histogram := func(name, unit, description string, boundaries []float64) metric.Int64Histogram {
		h, err := m.Int64Histogram(name, metric.WithUnit(unit), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(boundaries...))
		errs = append(errs, err)
		return h
	}
	*i = instruments{
		runStarts:         counter("weft.run.starts", "{run}", "Starts that the store has accepted."),
		runDuration:       seconds("weft.run.duration", "Time from the start of a run to its end.", long),
		runsRemoved:       counter("weft.run.removed", "{run}", "Runs that were removed from the store after their end."),
		queueWait:         seconds("weft.queue.wait", "Time that a run has waited in the line of its queue.", long),
		executionsActive:  active("weft.execution.active", "{execution}", "Runs that this engine executes."),
		executionDuration: seconds("weft.execution.duration", "Time for which an engine has executed a run without interruption.", long),
		replayDuration:    seconds("weft.replay.duration", "Time to read the history of a run that is executed again.", short),
		replayEvents:      histogram("weft.replay.events", "{event}", "Events in the history of a run that is executed again.", counts),
		attemptsActive:    active("weft.attempt.active", "{attempt}", "Calls of functions of activities and steps in progress."),
		attemptDuration:   seconds("weft.attempt.duration", "Duration of a call of a function of an activity or a step.", medium),
		retries:           counter("weft.attempt.retries", "{attempt}", "Failed attempts that another attempt or the verifier follows."),
		raised:            counter("weft.attention.raised", "{reason}", "Reasons for which a run has come to need an operator."),
		cleared:           counter("weft.attention.cleared", "{reason}", "Reasons for which a run needs an operator no longer."),
		signalsAccepted:   counter("weft.signal.accepted", "{signal}", "Signals that senders know to be accepted."),
		signalsReceived:   counter("weft.signal.received", "{signal}", "Signals that runs have received."),
		commitDuration:    seconds("weft.commit.duration", "Time that the store took for a commit.", short),
		commitSize:        histogram("weft.commit.size", "By", "Size of the batch of a commit.", sizes),
		commitGroup:       histogram("weft.commit.group", "{batch}", "Batches that the store committed in one transaction.", groups),
		takeovers:         counter("weft.claim.takeovers", "{run}", "Runs that were taken over from an engine that is dead or has stopped."),
		lostRaces:         counter("weft.claim.lost_races", "{claim}", "Claims that another write has prevented."),
		fenced:            counter("weft.commit.fenced", "{commit}", "Commits of an engine that was not the owner of the run any more."),
		inputChanges:      counter("weft.replay.input_changes", "{run}", "Runs that were replayed with another input of an operation than the recorded one."),
		leasesLost:        counter("weft.lease.lost", "{lease}", "Leases that were lost."),
	}
	return errors.Join(errs...)
}

// Callbacks without a context record with this one.
var background = context.Background()

// count returns a callback that adds one to c.
func count[E any](c metric.Int64Counter) func(E) {
	return func(E) { c.Add(background, 1) }
}

func with(attributes ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}

// named returns the attributes of an operation. A step has no name: a program may compute it.
func named(workflow, kind, name string, more ...attribute.KeyValue) []attribute.KeyValue {
	a := append(more, workflowKey.String(workflow), kindKey.String(kind))
	if kind == "activity" {
		a = append(a, activityKey.String(name))
	}
	return a
}

// queued returns the attributes of a run.
func queued(workflow, queue string, more ...attribute.KeyValue) []attribute.KeyValue {
	a := append(more, workflowKey.String(workflow))
	if queue != "" {
		a = append(a, queueKey.String(queue))
	}
	return a
}

func (i *instruments) started(e engine.StartedEvent) {
	i.runStarts.Add(background, 1, with(queued(e.Workflow, e.Queue)...))
}

func (i *instruments) admitted(e engine.AdmittedEvent) {
	i.queueWait.Record(background, e.Waited.Seconds(), with(queued(e.Workflow, e.Queue)...))
}

func (i *instruments) replayed(e engine.ReplayedEvent) {
	a := with(workflowKey.String(e.Workflow))
	i.replayDuration.Record(background, e.Took.Seconds(), a)
	i.replayEvents.Record(background, int64(e.Events), a)
}

func (i *instruments) ended(e engine.EndedEvent) {
	i.runDuration.Record(background, e.Took.Seconds(), with(queued(e.Workflow, e.Queue, statusKey.String(string(e.Status)))...))
}

func (i *instruments) removed(e engine.RemovedEvent) {
	i.runsRemoved.Add(background, 1, with(workflowKey.String(e.Workflow), statusKey.String(string(e.Status)), causeKey.String(string(e.Cause))))
}

// began counts an execution that has begun, and left one that has ended.
func (i *instruments) began(ctx context.Context, workflow string) {
	i.executionsActive.Add(ctx, 1, with(workflowKey.String(workflow)))
}

func (i *instruments) left(ctx context.Context, e engine.ExecutionEndedEvent) {
	i.executionsActive.Add(ctx, -1, with(workflowKey.String(e.Workflow)))
	i.executionDuration.Record(ctx, e.Took.Seconds(), with(workflowKey.String(e.Workflow), exitKey.String(string(e.Exit))))
}

// attempted counts by how much the number of attempts like e in progress has changed.
func (i *instruments) attempted(ctx context.Context, change int64, e engine.AttemptBeganEvent) {
	i.attemptsActive.Add(ctx, change, with(named(e.Workflow, e.Kind, e.Name, phaseKey.String(string(e.Phase)))...))
}

func (i *instruments) attemptTook(ctx context.Context, e engine.AttemptEndedEvent) {
	i.attemptDuration.Record(ctx, e.Took.Seconds(), with(named(e.Workflow, e.Kind, e.Name, phaseKey.String(string(e.Phase)), outcomeKey.String(string(e.Outcome)))...))
}

func (i *instruments) retryScheduled(e engine.RetryScheduledEvent) {
	i.retries.Add(background, 1, with(named(e.Workflow, e.Kind, e.Name)...))
}

func (i *instruments) attentionRaised(e engine.AttentionRaisedEvent) {
	i.raised.Add(background, 1, with(workflowKey.String(e.Workflow), reasonKey.String(string(e.Reason))))
}

func (i *instruments) attentionCleared(e engine.AttentionClearedEvent) {
	i.cleared.Add(background, 1, with(workflowKey.String(e.Workflow), reasonKey.String(string(e.Reason))))
}

func (i *instruments) signalAccepted(e engine.SignalAcceptedEvent) {
	i.signalsAccepted.Add(background, 1, with(duplicateKey.Bool(e.Duplicate)))
}

func (i *instruments) signalReceived(e engine.SignalReceivedEvent) {
	i.signalsReceived.Add(background, 1, with(workflowKey.String(e.Workflow)))
}

func (i *instruments) committed(e engine.CommittedEvent) {
	a := with(outcomeKey.String(string(e.Outcome)))
	i.commitDuration.Record(background, e.Took.Seconds(), a)
	i.commitSize.Record(background, int64(e.Bytes), a)
	i.commitGroup.Record(background, int64(e.Group), a)
}
