package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/checkpoint"
	"github.com/weft-go/weft/internal/acceptance"
	"github.com/weft-go/weft/internal/integrity"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/membership"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// The laws are what must hold after every commit, whoever made it and whatever its
// sender was told. They know what is in the store, and what has happened outside.
type laws struct {
	store  *memory.Store
	ttl    time.Duration
	builds bool // hosts have different ones

	vouched func(key string) bool // that an effect has happened
	met     func(what string)

	mu      sync.Mutex // guards what follows
	broken  []string
	runs    map[string]*lawful
	logs    map[string]*journal.Workflow // by the prefix of the keys of their checkpoints
	owners  map[string]*opening          // of incarnations
	left    map[string]time.Time         // when a renewal was first sent, by its bytes
	trusted map[string]time.Time         // until when an incarnation may act
	over    map[string]bool              // incarnations that stopped, or were found dead
	bulks   map[string]*lawfulBulk
	spoken  map[string]*spoken // streams, by run
	served  *time.Time         // what came before is none of the schedule; nil: it was not put
}

// A lawful run is what is known of a workflow.
type lawful struct {
	record   *journal.Workflow
	head     checkpoint.Checkpoint
	claim    uint64          // the highest
	ended    string          // as the history has it
	outcomes map[string]bool // by operation
	intents  map[string]checkpoint.Event
	leaves   map[string]uint64 // the checkpoint with the intent, by operation
	accepted map[string][]string
	consumed map[string]int
	waiting  map[string]bool // payloads that are stored
	place    uint64          // the last in the inbox
	dues     []timer         // in their order
	fired    int
	running  map[string]bool // attempts under way, by host and operation
	begun    map[string]bool // attempts, by claim

	log    []stood           // the events that a replay delivers
	began  int               // where the life begins in log
	places map[string]uint64 // of signals in the inbox, by name and ID
	set    map[string]uint64 // the checkpoint with which a value was published, by name
	fenced map[*opening]bool // hosts from which a reset has taken the run
	closed map[string]bool   // hooks, by the name of their signals
	former map[string]bool   // operations that were begun again under another id
	gone   bool              // it was removed
	above  uint64            // the highest number of what was removed
	resets []time.Time       // when it was reset

	revived bool // it has gone on after an end
	older   bool // a build without the change has executed it
}

// A timer fires d after a moment.
type timer struct {
	at time.Time
	d  time.Duration
}

// A stood event stands: no reset has passed over it.
type stood struct {
	c     uint64 // its checkpoint
	at    time.Time
	event checkpoint.Event
}

func newLaws(s *memory.Store, ttl time.Duration) *laws {
	return &laws{
		store: s, ttl: ttl, runs: map[string]*lawful{}, logs: map[string]*journal.Workflow{}, owners: map[string]*opening{},
		left: map[string]time.Time{}, trusted: map[string]time.Time{}, over: map[string]bool{}, bulks: map[string]*lawfulBulk{}, spoken: map[string]*spoken{},
	}
}

func (l *laws) wrong(format string, args ...any) {
	l.broken = append(l.broken, fmt.Sprintf(format, args...))
}

func (l *laws) of(id string) *lawful {
	if l.runs[id] == nil {
		l.runs[id] = newLawful()
	}
	return l.runs[id]
}

func newLawful() *lawful {
	return &lawful{
		outcomes: map[string]bool{}, intents: map[string]checkpoint.Event{}, leaves: map[string]uint64{},
		accepted: map[string][]string{}, consumed: map[string]int{}, waiting: map[string]bool{},
		running: map[string]bool{}, begun: map[string]bool{},
		places: map[string]uint64{}, set: map[string]uint64{}, fenced: map[*opening]bool{}, former: map[string]bool{}, closed: map[string]bool{},
	}
}

// sent notes when a lease leaves for the first time: from then on it is trusted.
func (l *laws) sent(b storage.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range b.Ops {
		if _, again := l.left[string(o.Value)]; !again && o.Kind == storage.PutOp && engineOf(o.Key) != "" {
			l.left[string(o.Value)] = time.Now()
		}
	}
}

// before is what is stored under the keys that b changes.
func (l *laws) before(b storage.Batch) map[string][]byte {
	was := map[string][]byte{}
	for _, o := range b.Ops {
		v, err := l.store.Get(context.Background(), o.Key)
		if err == nil {
			was[string(o.Key)] = v
		}
	}
	return was
}

// A touched run is what a batch does to one.
type touched struct {
	*lawful
	id       string
	appended []checkpoint.Checkpoint
	removed  []uint64 // checkpoints
	input    bool     // it has another one
	set      []string // values that are published
	record   []byte   // anew
	headed   *headed  // its stream
}

// applied judges a commit of o's that has been done. It says whether a client has asked for it.
func (l *laws) applied(o *opening, asked bool, b storage.Batch, was map[string][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone := l.removed(o, asked, b)
	l.scheduled(b)
	l.bulked(b)
	var all []*touched
	touch := func(id string) *touched {
		for _, t := range all {
			if t.id == id {
				return t
			}
		}
		t := &touched{lawful: l.of(id), id: id}
		all = append(all, t)
		return t
	}
	for _, wf := range journal.WorkflowsIn(b) {
		l.logs[string(wf.Log().Prefix())] = wf
	}
	for _, op := range b.Ops {
		parts, err := storage.SplitKey(op.Key)
		if err != nil || op.Kind == storage.DeleteRangeOp {
			l.wrong("a change of %q, which nobody asked for", op.Key)
			continue
		}
		wf := l.logOf(op.Key)
		if wf != nil {
			parts[0], parts[1] = "log", wf.ID
		}
		if len(parts) > 1 && gone[parts[1]] {
			continue
		}
		before, there := was[string(op.Key)]
		gone := op.Kind == storage.DeleteOp
		switch parts[0] {
		case "eng":
			l.lease(o, parts[1], op, before)
		case "wf":
			if len(parts) == 4 && parts[2] == "pub" {
				if t := touch(parts[1]); !gone {
					t.set = append(t.set, l.published(storage.Entry{Key: op.Key, Value: op.Value}))
					l.met("values stored")
				}
				continue
			}
			l.run(touch(parts[1]), op, len(parts), there, gone)
		case "log":
			if wf == nil {
				l.wrong("a change of %q, which belongs to nothing", op.Key)
				continue
			}
			l.logged(touch(wf.ID), wf, op, there, gone)
		case "hook", "hres":
			l.hook(op, parts, there, gone)
		case "hk":
			touch(parts[1]).closed[signal.HookPrefix+parts[2]] = gone
		case "stream", "chunk":
			l.streamed(touch(parts[1]), op, parts, was, gone)
		case "sigres", "inbox", "sig":
			l.signal(o, touch(parts[1]), op, parts, was[string(op.Key)], gone)
		}
	}
	for _, t := range all {
		l.spokeBefore(o, t)
		if by := resetBy(t); by != nil {
			l.rewind(t, by)
		}
		if retried(t) {
			l.met("resumed")
			t.lawful.ended, t.lawful.revived = "", true
		}
		for _, c := range t.appended {
			l.append(t.lawful, &c)
			for _, value := range t.set {
				if _, again := t.lawful.set[value]; !again {
					t.lawful.set[value] = c.Number
				}
			}
		}
		switch {
		case t.record != nil:
			l.rewritten(o, t, was[string(keys.Workflow(t.id))])
		case len(t.appended) > 0:
			l.byOwner(o, t.lawful)
		}
		l.drives(o, t)
		l.lives(t)
		l.waits(t.lawful)
		l.spokeAfter(t)
	}
	if slices.ContainsFunc(b.Ops, func(op storage.Op) bool { return engineOf(op.Key) == "" }) {
		for _, problem := range integrity.Check(context.Background(), l.store, time.Time{}) {
			l.wrong("%s", problem)
		}
	}
}

// logOf returns the workflow of a checkpoint, or nil if the key is no checkpoint's.
func (l *laws) logOf(key []byte) *journal.Workflow {
	return l.logs[string(key[:bytes.LastIndexByte(key, ':')+1])]
}

// run takes in a change of a key of a workflow's.
func (l *laws) run(t *touched, op storage.Op, parts int, there, gone bool) {
	switch {
	case gone:
		l.wrong("CK1: %q is deleted", op.Key)
	case parts == 2:
		t.record = op.Value
	case there && bytes.Equal(op.Key, keys.Input(t.id)):
		t.input = true
	case there && bytes.Equal(op.Key, keys.Output(t.id)) && t.revived && t.ended == "":
		// it ends again
	case there:
		l.wrong("CK2: %q is written again", op.Key)
	}
}

// logged takes in a change of a checkpoint of a workflow.
func (l *laws) logged(t *touched, wf *journal.Workflow, op storage.Op, there, gone bool) {
	n, err := keys.Number(op.Key)
	switch {
	case err != nil:
		l.wrong("%v", err)
		return
	case gone:
		t.removed = append(t.removed, n)
		return
	case there:
		l.wrong("CK2: %q is written again", op.Key)
		return
	}
	c, own, err := journal.OpenEntry(wf, storage.Entry{Key: op.Key, Value: op.Value})
	if err != nil || !own {
		l.wrong("checkpoint %q: %v; of the workflow: %v", op.Key, err, own)
		return
	}
	t.appended = append(t.appended, c.Checkpoint)
}

// begun returns the event that a life begins with c, if one does that another life came before.
func begun(c checkpoint.Checkpoint) (e checkpoint.Event, ok bool) {
	i := slices.IndexFunc(c.Events, func(e checkpoint.Event) bool { return e.Kind == checkpoint.KindContinued })
	if i < 0 {
		return e, false
	}
	return c.Events[i], true
}

// lives judges that a run continues as new all at once, and that only what belongs to earlier lives
// is removed (CAN-6, CAN-8).
func (l *laws) lives(t *touched) {
	for _, n := range t.removed {
		if t.lawful.record != nil && n >= t.lawful.record.Base {
			l.wrong("CAN-6: checkpoint %d of %s is removed, and its life began with %d", n, t.id, t.lawful.record.Base)
		}
	}
	continued := len(t.appended) > 0
	if continued {
		_, continued = begun(t.appended[len(t.appended)-1])
	}
	if continued != t.input {
		l.wrong("CAN-8: %s continues as new: %v, and has another input: %v", t.id, continued, t.input)
	}
}

// signal takes in a change of a key of a signal's, which was there if was is not nil.
func (l *laws) signal(o *opening, t *touched, op storage.Op, parts []string, was []byte, gone bool) {
	there := was != nil
	switch {
	case parts[0] == "sig":
		t.waiting[parts[2]+"/"+parts[3]] = !gone
	case parts[0] == "inbox" && !gone:
		seq, err := keys.Number(op.Key)
		w, err2 := acceptance.OpenPlace(storage.Entry{Key: op.Key, Value: op.Value})
		signal := w.Name + "/" + w.ID
		first, again := t.places[signal]
		switch {
		case err != nil || err2 != nil || there:
			l.wrong("SG5: place %q is written again: %v", op.Key, errors.Join(err, err2))
		case again && seq != first:
			l.wrong("OPS-3: signal %s of %s goes back to place %d, and had %d", signal, t.id, seq, first)
		case !again && seq <= t.place && resetBy(t) == nil: // one that was received at once had no place
			l.wrong("SG5: place %q follows %d", op.Key, t.place)
		}
		t.places[signal], t.place = seq, max(t.place, seq)
	case parts[0] == "sigres" && there && !gone && resetBy(t) != nil: // the signal waits again, and is remembered from then on
		before, err := acceptance.OpenAccepted(storage.Entry{Key: op.Key, Value: was})
		after, err2 := acceptance.OpenAccepted(storage.Entry{Key: op.Key, Value: op.Value})
		if err != nil || err2 != nil || before != after || bytes.Equal(was, op.Value) { // when it is forgotten is no part of the answer
			l.wrong("SG1: the acceptance %q is changed by a reset, and more than for how long: %+v, and was %+v: %v", op.Key, after, before, errors.Join(err, err2))
		}
	case parts[0] == "sigres":
		if there || gone {
			l.wrong("SG1: the acceptance %q is changed", op.Key)
		}
		if t.ended != "" {
			l.wrong("SG3: %q is accepted after the end", op.Key)
		}
		t.accepted[parts[2]] = append(t.accepted[parts[2]], parts[3])
		l.signalled(o, parts[2], t.id, t.lawful.record)
	}
}

// hook takes in a change of who has a token, and of the answer to a resume.
func (l *laws) hook(op storage.Op, parts []string, there, gone bool) {
	switch {
	case parts[0] == "hres" && (there || gone):
		l.wrong("a resume of %s is accepted again, or forgotten", parts[2])
	case parts[0] == "hres" || gone:
	case there:
		a, err := journal.OpenHookAddress(storage.Entry{Key: op.Key, Value: op.Value})
		if err != nil {
			l.wrong("%v", err)
		} else if run := l.of(a.WorkflowID); len(run.resets) == 0 {
			l.wrong("a token of %s is taken, which another hook has", a.WorkflowID)
		}
	}
}

// waits judges that what was accepted waits in the store, or was received.
func (l *laws) waits(run *lawful) {
	for name, ids := range run.accepted {
		if run.closed[name] {
			continue // what waits in a hook goes with it
		}
		for i, id := range ids {
			if stored, done := run.waiting[name+"/"+id], i < run.consumed[name]; stored == done {
				l.wrong("SG2, SG4: signal %s/%s: it waits: %v, it was received: %v", name, id, stored, done)
			}
		}
	}
}

// An enrolment is what the laws read of an incarnation's record.
type registration struct {
	Stopped int64 `cbor:"4,keyasint,omitempty"`
	Dead    bool  `cbor:"7,keyasint,omitempty"`
}

// lease judges a change of an incarnation's record.
func (l *laws) lease(o *opening, incarnation string, op storage.Op, before []byte) {
	var r registration
	if op.Kind == storage.DeleteOp {
		if !l.over[incarnation] {
			l.wrong("OW8: %s is forgotten and not over", incarnation)
		}
		return
	}
	if _, err := record.Open(op.Key, op.Value, journal.Version, &r); err != nil {
		l.wrong("%v", err)
	}
	owner, known := l.owners[incarnation]
	left := time.Until(l.trusted[incarnation])
	switch {
	case l.over[incarnation] && cut(op.Key, before, op.Value):
		l.met("dead engines whose clock was ahead")
	case known && owner != o && !r.Dead:
		l.wrong("OW4: %s writes for %s, which is %s's", o.name, incarnation, owner.name)
	case before == nil: // also a first record that landed when the one before had been forgotten
		l.owners[incarnation], l.over[incarnation] = o, false
		l.trusted[incarnation] = l.left[string(op.Value)].Add(l.ttl)
	case l.over[incarnation]:
		l.wrong("OW4: %s is written again, which is over", incarnation)
	case r.Dead && left > 0:
		l.wrong("OW2: %s is found dead %v before its time", incarnation, left)
	case r.Dead || r.Stopped != 0:
		l.over[incarnation] = true
	default:
		l.trusted[incarnation] = l.left[string(op.Value)].Add(l.ttl)
	}
}

// cut reports whether a record of an incarnation has earlier times than before, and nothing else has changed.
func cut(key, before, after []byte) bool {
	was, err := membership.OpenRegistration(key, before)
	is, e := membership.OpenRegistration(key, after)
	if err != nil || e != nil {
		return false
	}
	ended := (is.Stopped != 0) == (was.Stopped != 0)
	earlier := is.Since <= was.Since && is.Stopped <= was.Stopped && is.Clock <= was.Clock && is.Proven <= was.Proven
	is.Since, is.Stopped, is.Clock, is.Proven = was.Since, was.Stopped, was.Clock, was.Proven
	return ended && earlier && reflect.DeepEqual(is, was)
}

// append judges the next checkpoint of a run.
func (l *laws) append(run *lawful, c *checkpoint.Checkpoint) {
	first := run.head.Number == 0
	if first && c.Number <= run.above {
		l.wrong("checkpoint %d is of an id that had number %d before it was removed", c.Number, run.above)
	}
	skipped := !first && len(run.head.Events) > 0 && run.head.Events[0].Kind == checkpoint.KindSkipped
	switch {
	case !first && !skipped && c.Number != run.head.Number+1, !first && c.Number <= run.head.Number:
		l.wrong("CK2: checkpoint %d follows %d", c.Number, run.head.Number)
	case c.Time.Before(run.head.Time):
		l.wrong("checkpoint %d is of %v, the one before of %v", c.Number, c.Time, run.head.Time)
	case run.ended != "":
		l.wrong("CK7: checkpoint %d follows the end", c.Number)
	}
	run.head = *c
	for _, e := range c.Events {
		l.event(run, c, e)
		run.log = append(run.log, stood{c.Number, c.Time, e})
	}
	if _, continued := begun(*c); continued {
		run.began = len(run.log)
	}
}

// resetBy returns the reset that a batch makes of a run, or nil.
func resetBy(t *touched) *journal.Reset {
	if t.record == nil || len(t.appended) == 0 {
		return nil
	}
	wf, err := journal.OpenWorkflow(t.id, t.record)
	if err != nil {
		return nil
	}
	return wf.ResetBy(t.appended[len(t.appended)-1].Number)
}

// rewind has a run go back to before an operation: what had its outcome by then has it, and nothing
// else.
func (l *laws) rewind(t *touched, by *journal.Reset) {
	run := t.lawful
	l.met("reset")
	if run.ended != "" {
		l.met("reset after the end")
		if p := run.record.Parent; p != nil && slices.ContainsFunc(l.of(p.ID).log, func(s stood) bool {
			return s.event.Kind == checkpoint.KindSettled && s.event.Operation == p.Operation
		}) {
			l.wrong("OPS-4: %s is reset, and its parent was told how it ended", t.id)
		}
	}
	cut := run.began
	for cut < len(run.log) && !partOf(run.log[cut].event.Operation, by.Before) {
		cut++
	}
	standing, passed := run.log[:cut:cut], run.log[cut:]
	n := len(run.record.Resets)
	if again := n > 0 && run.record.Resets[n-1].Before == by.Before; len(passed) == 0 && by.Before != "" && !again { // it may not have begun since
		l.wrong("OPS-8: %s is reset to before %q, which there is not", t.id, by.Before)
	}
	clear(run.outcomes)
	clear(run.consumed)
	clear(run.intents)
	clear(run.leaves)
	run.fired, run.log = 0, standing
	for _, s := range standing {
		run.takes(s.c, s.event)
	}
	run.ended, run.revived = "", run.revived || run.ended != ""
	for _, s := range passed {
		if partOf(s.event.Operation, by.Before) { // others may have begun before the point
			run.former[s.event.Operation] = true
		}
	}
	for e, err := range storage.All(context.Background(), l.store, keys.PublishedBy(t.id)) {
		if err != nil {
			l.wrong("%v", err)
			break
		}
		if value := l.published(e); run.set[value] > max(by.Point.Checkpoint, run.record.Base) {
			l.wrong("OPS-7: %s is reset to checkpoint %d, and has the value %s of checkpoint %d", t.id, by.Point.Checkpoint, value, run.set[value])
		}
	}
	run.resets = append(run.resets, t.appended[len(t.appended)-1].Time)
	if o := l.owners[run.record.Owner]; o != nil {
		run.fenced[o] = true
	}
}

// published returns the name of a value and what it is.
func (l *laws) published(e storage.Entry) string {
	name, v, err := journal.OpenPublished(e)
	if err != nil {
		l.wrong("%v", err)
		return ""
	}
	return fmt.Sprintf("%s=%s", name, v.Data)
}

// partOf reports whether an operation is the one with the given id, or in a branch of that id. Every
// operation is part of "".
func partOf(operation, id string) bool {
	return operation != "" && (id == "" || operation == id || strings.HasPrefix(operation, id+"."))
}

// takes takes in an event that stands.
func (run *lawful) takes(c uint64, e checkpoint.Event) {
	switch e.Kind {
	case checkpoint.KindDispatched:
		run.intents[e.Operation], run.leaves[e.Operation] = e, c
	case checkpoint.KindEnded:
		run.ended = e.Name
	case checkpoint.KindSettled, checkpoint.KindFired, checkpoint.KindReceived, checkpoint.KindMissed:
		run.outcomes[e.Operation] = true
	}
	switch e.Kind {
	case checkpoint.KindReceived:
		run.consumed[e.Name]++
	case checkpoint.KindFired:
		run.fired++
	}
}

func (l *laws) event(run *lawful, c *checkpoint.Checkpoint, e checkpoint.Event) {
	if run.former[e.Operation] && e.Kind != checkpoint.KindGivenUp { // its effect may have happened
		l.wrong("OPS-2: checkpoint %d has a %s of operation %s, which was passed over", c.Number, e.Kind, e.Operation)
	}
	switch e.Kind {
	case checkpoint.KindHeld:
		l.wrong("a run is held: %s: %s", e.Name, e.Error)
	case checkpoint.KindSettled, checkpoint.KindFired, checkpoint.KindReceived, checkpoint.KindMissed:
		if run.record != nil && run.record.Former(e.Operation) {
			l.wrong("CAN-6: operation %s has its outcome in checkpoint %d, and is of an earlier life", e.Operation, c.Number)
		}
		if run.outcomes[e.Operation] {
			l.wrong("AC2, TM3, SG4: operation %s has another outcome in checkpoint %d", e.Operation, c.Number)
		}
	}
	switch e.Kind {
	case checkpoint.KindReceived:
		ids, n := run.accepted[e.Name], run.consumed[e.Name]
		if n >= len(ids) || ids[n] != e.SignalID {
			l.wrong("SG4, SG5: %s/%s is received as number %d of %q", e.Name, e.SignalID, n, ids)
		}
	case checkpoint.KindSettled:
		if intent, left := run.intents[e.Operation]; left && e.Error == "" && e.Category == "" && !l.vouched(effectKey(run.record.ID, e.Operation, intent.Key)) {
			l.wrong("AC: %s is recorded as done, and its effect has not happened", intent.Key)
		}
		l.told(run, e)
	case checkpoint.KindFired:
		if run.fired >= len(run.dues) {
			l.wrong("TM3: a timer fires that nobody set")
		} else if due := run.due(e.Operation); c.Time.Before(due.Truncate(time.Microsecond)) {
			l.wrong("TM2: a timer fires at %v, %v before it is due", c.Time, due.Sub(c.Time))
		}
	}
	run.takes(c.Number, e)
}

// told judges that the end of a child that a run is told of is the last one (OPS-4).
func (l *laws) told(run *lawful, e checkpoint.Event) {
	for _, s := range slices.Backward(run.log) {
		if s.event.Kind != checkpoint.KindStarted || s.event.Operation != e.Operation {
			continue
		}
		if got := l.of(s.event.Child).ended; got != e.Why {
			l.wrong("OPS-4: %s is told that its child %s is %q, which is %q", run.record.ID, s.event.Child, e.Why, got)
		}
		return
	}
}

// due is when the next timer may fire, which is that of the operation.
func (run *lawful) due(operation string) time.Time {
	t := run.dues[run.fired]
	_, reset, again := strings.Cut(operation, "~")
	if n, err := strconv.Atoi(reset); again && err == nil && 0 < n && n <= len(run.resets) {
		return run.resets[n-1].Add(t.d) // one that begins behind the point counts from the reset on
	}
	return t.at
}

// rewritten judges a change of a workflow's record.
func (l *laws) rewritten(o *opening, t *touched, was []byte) {
	id, run, appended := t.id, t.lawful, t.appended
	after, err := journal.OpenWorkflow(id, t.record)
	if err != nil {
		l.wrong("record of %s: %v", id, err)
		return
	}
	before := run.record
	run.record, run.gone = after, false
	owned := len(appended) > 0
	if before == nil {
		before = &journal.Workflow{Generation: after.Generation}
	} else if string(was) != string(before.Raw()) {
		l.wrong("CK4: the record of %s was written on one that is not there", id)
	}
	l.actedOn(o, before, after, appended)
	l.begun(o, before, after)
	switch {
	case len(after.Retries) > len(before.Retries):
		if !owned || before.Status != checkpoint.StatusFailed || after.Status != checkpoint.StatusRunning || after.Owner != "" || after.Generation != before.Generation || after.Claim != before.Claim {
			l.wrong("%s is resumed from %+v to %+v", id, before, after)
		}
		return
	case len(after.Resets) > len(before.Resets):
		n := len(before.Resets)
		if !owned || len(after.Resets) != n+1 || after.Owner != "" || after.Generation != before.Generation || after.Claim != before.Claim || after.Status != checkpoint.StatusRunning {
			l.wrong("OPS-2: %s is reset from %+v to %+v", id, before, after)
		}
		return
	case before.Status.Terminal() && after.Status == before.Status && after.EndedAt == before.EndedAt && !owned && (!maps.Equal(after.Labels, before.Labels) || (after.Protected == nil) != (before.Protected == nil)):
		// an operator has labelled or protected it, or has taken that back
	case before.Status.Terminal():
		l.wrong("CK7: %s is written after its end", id)
	case before.Generation != after.Generation:
		l.wrong("CK7: %s is another life", id)
	case after.Claim < before.Claim:
		l.wrong("OW1: the claim of %s goes back from %d to %d", id, before.Claim, after.Claim)
	case after.Status.Terminal() && string(after.Status) != run.ended:
		l.wrong("CK3: %s is %s, and its history says %q", id, after.Status, run.ended)
	case after.Claim != before.Claim:
		l.claimed(o, run, before, after, appended)
		return
	case after.Owner != before.Owner && after.Owner != "":
		l.wrong("OW6: %s goes to %s without a claim", id, after.Owner)
	}
	if owned && l.owners[before.Owner] != o && !terminates(appended) && !before.Delayed() { // a delayed run is cancelled at once
		l.wrong("CK4: %s commits to %s, which is %q's", o.name, id, before.Owner)
	}
}

// begun judges that a delayed run does not begin before its time, by the clock of who begins it (STA-1).
func (l *laws) begun(o *opening, before, after *journal.Workflow) {
	if !before.Delayed() || after.StartedAt == 0 || after.Status.Terminal() {
		return
	}
	if early := journal.Time(before.StartAt).Sub(time.Now().Add(o.furthestAhead())); early > time.Microsecond {
		l.wrong("STA-1: %s begins %s, %v before its time", o.name, after.ID, early)
	}
	l.met("delayed starts")
}

// terminates reports whether an operator ends the run, who is not its owner.
func terminates(appended []checkpoint.Checkpoint) bool {
	return slices.ContainsFunc(appended[len(appended)-1].Events, func(e checkpoint.Event) bool {
		return e.Kind == checkpoint.KindActed && e.Name == "terminate"
	})
}

// claimed judges a claim.
func (l *laws) claimed(o *opening, run *lawful, before, after *journal.Workflow, appended []checkpoint.Checkpoint) {
	id := after.ID
	if len(appended) == 0 {
		l.wrong("OW6: %s is claimed without a checkpoint", id)
		return
	}
	last := appended[len(appended)-1]
	claim := last.Events[0]
	if as, continued := begun(last); continued {
		if after.Life != before.Life+1 || after.Base != last.Number || l.owners[before.Owner] != o || as.By != before.Owner || after.Owner != "" && after.Owner != before.Owner {
			l.wrong("CAN-8: %s continues %s, which is %s's: from life %d to %d, which begins with %d, in checkpoint %d", o.name, id, before.Owner, before.Life, after.Life, after.Base, last.Number)
		}
		l.met("continued")
		if claim = last.Events[len(last.Events)-1]; after.Owner == "" {
			run.claim = after.Claim
			return
		}
	}
	switch {
	case after.Claim <= run.claim || after.Claim != last.Number || claim.Kind != checkpoint.KindClaimed || claim.By != after.Owner:
		l.wrong("OW1: claim %d of %s by %s: its checkpoint %d says %s by %s", after.Claim, id, after.Owner, last.Number, claim.Kind, claim.By)
	case l.owners[after.Owner] != o:
		l.wrong("OW6: %s claims %s for %s", o.name, id, after.Owner)
	case before.Owner != "" && before.Owner != after.Owner && !l.over[before.Owner]:
		l.wrong("OW2: %s takes %s from %s, which is not over", after.Owner, id, before.Owner)
	}
	run.claim = after.Claim
}

// byOwner judges a checkpoint under the record as it is.
func (l *laws) byOwner(o *opening, run *lawful) {
	switch {
	case run.record == nil:
		l.wrong("CK3: %s appends a checkpoint to nothing", o.name)
	case l.owners[run.record.Owner] != o:
		l.wrong("CK4: %s commits to %s, which is %q's", o.name, run.record.ID, run.record.Owner)
	case run.ended != "" && !run.record.Status.Terminal():
		l.wrong("CK3: the history of %s has ended, and its record has not", run.record.ID)
	}
}

// stale says that b is of a former owner: it would append to a run that is another's.
func (l *laws) stale(o *opening, b storage.Batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	appended := journal.AppendedBy(b)
	if len(appended) == 0 {
		return false
	}
	run := l.of(appended[0].Workflow.ID)
	if slices.ContainsFunc(b.Ops, func(op storage.Op) bool { return isDismissal(op) || resets(run, op) }) {
		return false // of an operator
	}
	return run.record != nil && !claims(b, run.record) && run.record.Owner != "" && l.owners[run.record.Owner] != o
}

// resets reports whether op is of a reset of the run.
func resets(run *lawful, op storage.Op) bool {
	if run.record == nil || op.Kind != storage.PutOp || !bytes.Equal(op.Key, keys.Workflow(run.record.ID)) {
		return false
	}
	wf, err := journal.OpenWorkflow(run.record.ID, op.Value)
	return err == nil && len(wf.Resets) > len(run.record.Resets)
}

func isDismissal(op storage.Op) bool {
	parts, err := storage.SplitKey(op.Key)
	return err == nil && parts[0] == "exp" && parts[2] == "kids"
}

// claims says that b changes the owner of wf: it puts another's held entry.
func claims(b storage.Batch, wf *journal.Workflow) bool {
	return slices.ContainsFunc(b.Ops, func(op storage.Op) bool {
		return op.Kind == storage.PutOp && bytes.HasPrefix(op.Key, []byte("held:")) && !bytes.Equal(op.Key, keys.Held(wf.Owner, wf.ID))
	})
}

// sleeps notes when a timer is due: the k-th of a run, at the same time in each replay. If the run was
// reset, an execution that does not know this yet may set it too. If builds differ, a newer one may have more to do
// before it.
func (l *laws) sleeps(id string, k int, now time.Time, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	set := timer{now.Add(d), d}
	switch run := l.of(id); {
	case k == len(run.dues):
		run.dues = append(run.dues, set)
	case k < len(run.dues) && (len(run.resets) > 0 || l.builds):
		if set.at.Before(run.dues[k].at) {
			run.dues[k] = set
		}
	case k > len(run.dues) || !run.dues[k].at.Equal(set.at):
		l.wrong("TM1: timer %d of %s is due at %v, in an earlier life at %v", k, id, set.at, run.dues[min(k, len(run.dues)-1)].at)
	}
}

// begins judges the beginning of an attempt on o's host. It is over when end is
// called.
func (l *laws) begins(ctx context.Context, o *opening, keyed bool) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := activity.InfoFrom(ctx)
	run := l.of(i.WorkflowID)
	here := fmt.Sprintf("%d/%s", o.n, i.Operation)
	what := fmt.Sprintf("%s of %s on %s", i.Operation, i.WorkflowID, o.name)
	if ctx.Err() != nil || !o.lives() { // it is told, or nobody is there
		return func() {}
	}
	if run.gone || run.above > 0 && run.fenced[o] { // it may not know yet that the run was removed
		return func() {}
	}
	owner := run.record.Owner
	once := fmt.Sprintf("%s/%d/%d", i.Operation, i.Attempt, run.record.Claim)
	intent := run.intents[i.Operation]
	switch {
	case l.owners[owner] != o && run.fenced[o]: // it does not know yet
		return func() {}
	case l.owners[owner] != o:
		l.wrong("OW6: attempt of %s, which is %q's", what, owner)
	case time.Now().After(l.trusted[owner]):
		l.wrong("OW3: attempt of %s, %v after its lease has run out", what, time.Since(l.trusted[owner]))
	case run.outcomes[i.Operation]:
		l.wrong("AC3: attempt of %s, which has its outcome", what)
	case run.running[here]:
		l.wrong("AC4: attempt of %s, while another is under way", what)
	case run.begun[once]:
		l.wrong("AC: attempt %d of %s a second time under one claim", i.Attempt, what)
	case keyed && (intent.Attempt != i.Attempt || run.leaves[i.Operation] != i.FencingToken || intent.Key != i.IdempotencyKey):
		l.wrong("AC1: attempt %d of %s with token %d and key %q: what left is %d with %d and %q", i.Attempt, what, i.FencingToken, i.IdempotencyKey, intent.Attempt, run.leaves[i.Operation], intent.Key)
	}
	run.running[here], run.begun[once] = true, true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(run.running, here)
	}
}

// kept returns what was broken so far.
func (l *laws) kept() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.broken) == 0 {
		return nil
	}
	return errors.New(strings.Join(l.broken, "\n    "))
}
