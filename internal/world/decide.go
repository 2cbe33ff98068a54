package world

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
)

// A state is what is decided on: what was read of a run, and what is asked for.
type state struct {
	*Request
	data   data
	now    int64  // milliseconds since 1970
	low    uint64 // random
	limits limits

	head *head // nil: there is no such run

	presumed bool // not all of this was read since the request came: only a commit counts

	// What has the request's correlation as its id. nil: there is none, or the request needs none.
	step *step
	hook *hook
	wait *wait

	holder     *owner  // of the token that the request names
	namesake   *owner  // of a hook_created: the open hook of another run with the same id
	input      *event  // of a run_created of a run that is there: the event that has its input
	resumed    *event  // of a hook_received: the event that was written with its resume id
	correlated bool    // of an attr_set: the run has an event of the correlation
	live       []*hook // of an event that ends the run: its open hooks
	attributes *attributes
}

type limits struct{ events, hooks int }

// A decision is what becomes of a request: a change, or an answer that was given before.
type decision struct {
	state *state
	batch storage.Batch
	head  head // as it is then

	events   []*event // that are appended
	answered bool     // nothing is changed: an earlier request has done it
	first    uint64   // then, the number of the event that it has written; 0: none is told

	step       *step // as they are then, if the request is about one
	hook       *hook
	wait       *wait
	attributes *attributes

	stepCreated bool
	errs        []error // of encoding
}

// decide returns what becomes of a request. An error is an *Error, unless a record cannot be encoded.
func (s *state) decide() (*decision, error) {
	d := &decision{state: s, step: s.step, hook: s.hook, wait: s.wait, attributes: s.attributes}
	if s.head != nil {
		d.head = *s.head
	}
	if err := d.admit(); err != nil {
		return nil, err
	}
	if err := d.event(); err != nil {
		return nil, err
	}
	if d.answered {
		return d, nil
	}
	if over := len(d.events) > 0 && d.head.Seq > uint64(s.limits.events) && !s.Type.ends(); over {
		return nil, conflict(CodeLimit, "Run %s has %d events, which is the most that a run may have", s.RunID, s.limits.events)
	}
	d.finish()
	return d, errors.Join(d.errs...)
}

// ends reports whether an event of the type ends a run.
func (t EventType) ends() bool { return t == RunCompleted || t == RunFailed || t == RunCancelled }

// admit refuses what is not acceptable whatever the type of the event.
func (d *decision) admit() error {
	s, h := d.state, d.state.head
	if h == nil {
		if s.Type == RunCreated || s.Type == RunStarted && s.data.has("workflowName") {
			return nil
		}
		return NotFound("Run", s.RunID)
	}
	switch {
	case h.Removed > 0 && s.Type == RunCreated:
		return conflict(CodeConflict, "Run %s has ended, and was removed", s.RunID)
	case h.Removed > 0 && s.Type == RunStarted: // a runtime drops the message that has it start the run
		return conflict(CodeRunTerminal, "Run %s has ended, and was removed", s.RunID)
	case h.Removed > 0:
		return NotFound("Run", s.RunID)
	case s.ClientSpec > 0 && h.Spec > s.ClientSpec:
		return conflict(CodeNotSupported, "Run %s needs spec version %d, the client has %d", s.RunID, h.Spec, s.ClientSpec)
	case h.Spec <= 1 && s.Type != RunCreated && s.Type != RunCancelled && s.Type != HookReceived && s.Type != WaitCompleted:
		return conflict(CodeNotSupported, "%s is not supported for legacy runs: run %s has spec version %d", s.Type, s.RunID, h.Spec)
	case s.SeqInBand != nil && *s.SeqInBand != h.SeqInBand:
		return stale("Run %s has changed: its last event in band is %d, not %d", s.RunID, h.SeqInBand, *s.SeqInBand)
	case s.StateUpdatedAt > 0 && s.StateUpdatedAt < h.OutOfBand:
		return stale("Run %s has changed: an event came from outside at %d, after %d", s.RunID, h.OutOfBand, s.StateUpdatedAt)
	}
	return nil
}

// legacy reports whether the run is of a runtime without an event log, whose entities are not checked.
func (d *decision) legacy() bool { return d.head.Spec <= 1 }

// event decides by the type of the event.
func (d *decision) event() error {
	s := d.state
	switch s.Type {
	case RunCreated:
		return d.runCreated()
	case RunStarted:
		return d.runStarted()
	case RunCompleted, RunFailed, RunCancelled:
		return d.runEnded()
	case StepCreated:
		return d.stepCreates(StepCreated)
	case StepStarted:
		return d.stepStarted()
	case StepCompleted, StepFailed, StepRetrying:
		return d.stepEnded()
	case HookCreated:
		return d.hookCreated()
	case HookReceived:
		return d.hookReceived()
	case HookDisposed:
		return d.hookDisposed()
	case WaitCreated, WaitCompleted:
		return d.waits()
	case AttrSet:
		return d.attrSet()
	}
	return Invalid("eventType %q is none that can be created", s.Type)
}

// append appends an event. An event from outside is one that the run could not have foreseen. It is later than all before it, since
// whoever has seen only those tells by their time that it has not seen this one.
func (d *decision) append(t EventType, correlation string, v Value, outside bool) *event {
	s, h := d.state, &d.head
	h.Seq++
	if outside {
		h.Last++
	}
	h.Last = max(s.now, h.Last)
	h.Updated = h.Last
	e := &event{
		Type: t, Correlation: correlation, Spec: s.Spec, Created: h.Last, Low: (s.low + uint64(len(d.events))) & (1<<40 - 1),
		Data: v, Request: s.RequestID, run: s.RunID, n: h.Seq, pos: h.Spec >= positionSpec,
	}
	if outside {
		h.OutOfBand = h.Last
	} else {
		h.SeqInBand = h.Seq
	}
	if t == s.Type {
		e.Occurred = millis(s.OccurredAt)
	}
	d.events = append(d.events, e)
	return e
}

// finish adds to the batch the events and the head.
func (d *decision) finish() {
	s := d.state
	for _, e := range d.events {
		at := keys.WorldEvent(s.RunID, e.n)
		var err error
		e.raw, err = record.Seal(at, version, e, nil)
		d.errs = append(d.errs, err)
		d.batch.Ops = append(d.batch.Ops, storage.Put(at, e.raw))
		if e.Correlation != "" {
			d.put(keys.WorldCorrelated(e.Correlation, s.RunID, e.n), &mark{}, nil)
		}
	}
	at := keys.World(s.RunID)
	var err error
	d.head.raw, err = record.Seal(at, version, &d.head, d.head.unknown)
	d.errs = append(d.errs, err)
	d.batch.Ops = append(d.batch.Ops, storage.Put(at, d.head.raw))
	if s.head == nil {
		d.batch.If = append(d.batch.If, storage.Absent(at))
		d.put(keys.WorldListed("all", "", s.RunID), &mark{}, nil)
		d.put(keys.WorldListed("name", d.head.Name, s.RunID), &mark{}, nil)
		d.put(keys.WorldListed("status", string(d.head.Status), s.RunID), &mark{}, nil)
		return
	}
	d.batch.If = append(d.batch.If, storage.Equal(at, s.head.raw))
	if before := s.head.Status; before != d.head.Status {
		d.delete(keys.WorldListed("status", string(before), s.RunID))
		d.put(keys.WorldListed("status", string(d.head.Status), s.RunID), &mark{}, nil)
	}
}

func (d *decision) put(key []byte, v any, unknown record.Unknown) {
	d.errs = append(d.errs, put(&d.batch, key, v, unknown))
}

// create adds that an entity of the run is stored that was absent.
func (d *decision) create(kind, id string, v any) {
	at := keys.WorldEntity(d.state.RunID, kind, id)
	d.batch.If = append(d.batch.If, storage.Absent(at))
	d.put(at, v, nil)
}

func (d *decision) delete(key []byte) { d.batch.Ops = append(d.batch.Ops, storage.Delete(key)) }

// already answers with an event that was written before.
func (d *decision) already(n uint64) error {
	d.answered, d.first = true, n
	return nil
}

// runCreated: absent, or the same again.
func (d *decision) runCreated() error {
	s := d.state
	if s.head != nil {
		name, _ := s.data.text("workflowName")
		deployment, _ := s.data.text("deploymentId")
		first, err := openData(s.input.Data)
		if err != nil || name != s.head.Name || deployment != s.head.Deployment || string(first.get("input")) != string(s.data.get("input")) {
			return conflict(CodeConflict, "Run %s exists already, with another workflow, deployment or input", s.RunID)
		}
		return d.already(s.input.n)
	}
	return d.begin(RunCreated, s.Data)
}

// begin begins the run with a run_created.
func (d *decision) begin(t EventType, v Value) error {
	s, h := d.state, &d.head
	var err error
	if h.Name, err = s.data.text("workflowName"); err != nil {
		return err
	}
	if h.Deployment, err = s.data.text("deploymentId"); err != nil {
		return err
	}
	if h.Name == "" || len(h.Name) > maxWorkflow || h.Deployment == "" || len(h.Deployment) > keys.MaxName { // its queue has that name
		return Invalid("%s: workflowName has 1 to %d bytes, deploymentId 1 to %d", t, maxWorkflow, keys.MaxName)
	}
	h.run, h.Status, h.Spec, h.Created = s.RunID, Pending, max(s.Spec, 1), s.now
	if s.ClientSpec > 0 && h.Spec > s.ClientSpec {
		return conflict(CodeNotSupported, "Run %s needs spec version %d, the client has %d", s.RunID, h.Spec, s.ClientSpec)
	}
	h.Input = d.append(RunCreated, "", v, false).n
	if given := s.data.get("attributes"); !absentValue(given) {
		var all map[string]string
		if few.Unmarshal(given, &all) != nil {
			return Invalid("eventData.attributes is no map of texts")
		}
		var changes []attributeChange
		for k, v := range all {
			changes = append(changes, attributeChange{k, &v})
		}
		return d.setAttributes(changes)
	}
	return nil
}

// runStarted: of a pending run, or of one that is created by it.
func (d *decision) runStarted() error {
	s := d.state
	switch {
	case s.head == nil:
		if err := d.begin(RunStarted, s.Data); err != nil {
			return err
		}
	case d.head.Status.Ended():
		return conflict(CodeRunTerminal, "Run %s is in the terminal state %s: %s", s.RunID, d.head.Status, transition(d.head.Status, Running))
	case d.head.Status == Running:
		return d.already(0)
	}
	d.start()
	return nil
}

// start starts the run. The event has no data: a runtime sends with it what the creation of the run has.
func (d *decision) start() {
	e := d.append(RunStarted, "", nil, false)
	d.head.Status, d.head.Started = Running, e.Created
}

// transition says that a status cannot follow another one.
func transition(from, to Status) string {
	return "Invalid transition from " + string(from) + " to " + string(to)
}

// runEnded ends the run, and disposes its hooks.
func (d *decision) runEnded() error {
	s, h := d.state, &d.head
	to := map[EventType]Status{RunCompleted: Completed, RunFailed: Failed, RunCancelled: Cancelled}[s.Type]
	if h.Status.Ended() {
		if s.Type == RunCancelled && h.Status == Cancelled {
			return d.already(h.Outcome)
		}
		return conflict(CodeRunTerminal, "Run %s is in the terminal state %s: %s", s.RunID, h.Status, transition(h.Status, to))
	}
	if h.Status == Pending && s.Type != RunCancelled {
		d.start()
	}
	for _, k := range s.live {
		d.dispose(k, nil).Spec = max(2, h.Spec)
	}
	e := d.append(s.Type, "", s.Data, false)
	h.Status, h.Ended, h.Outcome = to, e.Created, e.n
	d.put(keys.WorldExpiry(keys.WorldRunEnded, at(h.Ended), s.RunID), &mark{}, nil)
	if s.Type == RunFailed {
		return d.failure(e)
	}
	return nil
}

// failure stores with an event of a runtime up to 4.x the error in the form that such a runtime reads.
func (d *decision) failure(e *event) error {
	if d.head.Spec > structuredSpec {
		return nil
	}
	s := d.state
	structured := &StructuredError{Message: unknownError}
	given := s.data.get("error")
	if fields, err := openData(given); err == nil {
		if m, err := fields.text("message"); err == nil && m != "" {
			structured.Message = m
		}
		structured.Stack, _ = fields.text("stack")
		structured.Code, _ = fields.text("code")
	} else {
		structured.Message = textOf(given)
	}
	if stack, _ := s.data.text("stack"); stack != "" {
		structured.Stack = stack
	}
	if code, _ := s.data.text("errorCode"); code != "" {
		structured.Code = code
	}
	e.Error = encodeError(structured)
	return nil
}

// structuredSpec is the highest spec of runs whose errors are StructuredErrors.
const structuredSpec = 3

// onEnded refuses what cannot be created on a run that has ended.
func (d *decision) onEnded() error {
	if d.head.Status.Ended() {
		return conflict(CodeRunTerminal, "%s on terminal run %s, which is %s", d.state.Type, d.state.RunID, d.head.Status)
	}
	return nil
}

// stepCreates creates a step, with the event of the request or with a step_started that has its input.
func (d *decision) stepCreates(t EventType) error {
	s := d.state
	if err := d.onEnded(); err != nil {
		return err
	}
	if s.step != nil {
		return conflict(CodeConflict, "Step %s exists already", s.Correlation)
	}
	name, err := s.data.text("stepName")
	if err != nil {
		return err
	}
	if name == "" || len(name) > maxWorkflow {
		return Invalid("%s: stepName has 1 to %d bytes", t, maxWorkflow)
	}
	e := d.append(StepCreated, s.Correlation, s.Data, false)
	d.step = &step{id: s.Correlation, Name: name, Status: Pending, Created: e.Created, Updated: e.Created, Input: e.n}
	if t == StepCreated {
		d.putStep()
	}
	return nil
}

func (d *decision) putStep() {
	if d.state.step == nil {
		d.create(kindStep, d.step.id, d.step)
		return
	}
	d.put(keys.WorldEntity(d.state.RunID, kindStep, d.step.id), d.step, d.step.unknown)
}

func (d *decision) stepStarted() error {
	s := d.state
	switch {
	case s.data.has("input"):
		if err := d.stepCreates(StepStarted); err != nil {
			return err
		}
		d.stepCreated = true
	case s.step == nil:
		return NotFound("Step", s.Correlation)
	case s.step.Status.Ended():
		return conflict(CodeConflict, "Step %s is in the terminal state %s: %s", s.Correlation, s.step.Status, transition(s.step.Status, Running))
	case d.head.Status.Ended():
		return d.onEnded()
	case s.step.RetryAfter > s.now:
		left := time.Duration(min(s.step.RetryAfter-s.now, MostDelay.Milliseconds())) * time.Millisecond
		return &Error{Status: 425, Code: CodeTooEarly, Message: "Step " + s.Correlation + " is to be retried in " + left.String(), RetryAfter: left}
	}
	after := *d.step
	v := s.Data
	if d.stepCreated {
		v = s.data.without("input")
	}
	e := d.append(StepStarted, s.Correlation, v, false)
	after.Status, after.Attempt, after.Updated, after.RetryAfter = Running, after.Attempt+1, e.Created, 0
	if after.Started == 0 {
		after.Started = e.Created
	}
	d.step = &after
	d.putStep()
	return nil
}

// stepEnded: completed, failed, or to be retried.
func (d *decision) stepEnded() error {
	s := d.state
	to := map[EventType]Status{StepCompleted: Completed, StepFailed: Failed, StepRetrying: Pending}[s.Type]
	switch {
	case s.step == nil:
		return NotFound("Step", s.Correlation)
	case s.step.Status.Ended():
		return conflict(CodeConflict, "Step %s is in the terminal state %s: %s", s.Correlation, s.step.Status, transition(s.step.Status, to))
	case d.head.Status.Ended() && s.step.Status != Running:
		return d.onEnded()
	}
	retry, err := s.data.time("retryAfter")
	if err != nil {
		return err
	}
	e := d.append(s.Type, s.Correlation, s.Data, false)
	after := *s.step
	after.Status, after.Updated = to, e.Created
	switch s.Type {
	case StepCompleted:
		after.Ended, after.Output = e.Created, e.n
	case StepFailed:
		after.Ended, after.Failure = e.Created, e.n
	case StepRetrying:
		after.RetryAfter, after.Failure = millis(retry), e.n
	}
	d.step = &after
	d.putStep()
	if s.Type != StepCompleted {
		return d.failure(e)
	}
	return nil
}

func (d *decision) hookCreated() error {
	s := d.state
	if err := d.onEnded(); err != nil {
		return err
	}
	token, err := s.data.text("token")
	if err != nil {
		return err
	}
	if token == "" || len(token) > keys.MaxToken {
		return Invalid("hook_created: token has 1 to %d bytes", keys.MaxToken)
	}
	if s.hook != nil {
		if s.hook.Disposed > 0 || s.hook.Token != token {
			return conflict(CodeConflict, "Hook %s exists already, and is disposed or has another token", s.Correlation)
		}
		return d.already(s.hook.Event)
	}
	if s.namesake != nil {
		return conflict(CodeConflict, "Hook %s exists already, in run %s", s.Correlation, s.namesake.Run)
	}
	at := keys.WorldToken(keys.TokenHash(token))
	if s.holder != nil {
		if s.OnConflict == "error" {
			return conflict(CodeTokenTaken, "Hook with token %s already exists", token)
		}
		d.batch.If = append(d.batch.If, storage.Equal(at, s.holder.raw))
		v, err := encoder.Marshal(map[string]string{"token": token, "conflictingRunId": s.holder.Run})
		d.append(HookConflict, s.Correlation, v, false)
		return err
	}
	if d.head.Hooks >= s.limits.hooks {
		return conflict(CodeLimit, "Run %s has %d open hooks, which is the most that a run may have", s.RunID, d.head.Hooks)
	}
	webhook, err := s.data.flag("isWebhook")
	if err != nil {
		return err
	}
	system, err := s.data.flag("isSystem")
	if err != nil {
		return err
	}
	e := d.append(HookCreated, s.Correlation, s.Data, false)
	d.hook = &hook{id: s.Correlation, Token: token, Created: e.Created, Event: e.n, Webhook: webhook, System: system}
	d.head.Hooks++
	mine := &owner{Run: s.RunID, Hook: s.Correlation}
	byID := keys.WorldHookRun(s.Correlation)
	d.batch.If = append(d.batch.If, storage.Absent(at), storage.Absent(byID))
	d.put(at, mine, nil)
	d.put(byID, mine, nil)
	d.create(kindHook, s.Correlation, d.hook)
	d.put(keys.WorldEntity(s.RunID, kindLive, s.Correlation), &mark{}, nil)
	return nil
}

func (d *decision) hookReceived() error {
	s := d.state
	if s.resumed != nil {
		first, err := openData(s.resumed.Data)
		if err != nil || s.resumed.Correlation != s.Correlation || string(first.get("payload")) != string(s.data.get("payload")) {
			return conflict(CodeConflict, "Resume %s was received already, of another hook or with another payload", s.ResumeID)
		}
		return d.already(s.resumed.n)
	}
	if !d.legacy() && (s.hook == nil || s.hook.Disposed > 0) {
		return NotFound("Hook", s.Correlation)
	}
	e := d.append(HookReceived, s.Correlation, s.Data, true)
	if e.Resume = s.ResumeID; e.Resume != "" {
		d.put(keys.WorldEntity(s.RunID, kindResumed, s.ResumeID), &resumed{Event: e.n}, nil)
	}
	return nil
}

func (d *decision) hookDisposed() error {
	s := d.state
	if s.hook == nil || s.hook.Disposed > 0 {
		return NotFound("Hook", s.Correlation)
	}
	d.dispose(s.hook, s.Data)
	return nil
}

// dispose disposes an open hook: its token and its id are free, and the hook stays as it was.
func (d *decision) dispose(k *hook, v Value) *event {
	run := d.state.RunID
	e := d.append(HookDisposed, k.id, v, false)
	after := *k
	after.Disposed = e.Created
	d.hook = &after
	d.head.Hooks--
	d.put(keys.WorldEntity(run, kindHook, k.id), &after, after.unknown)
	d.delete(keys.WorldEntity(run, kindLive, k.id))
	d.delete(keys.WorldToken(keys.TokenHash(k.Token)))
	d.delete(keys.WorldHookRun(k.id))
	return e
}

func (d *decision) waits() error {
	s := d.state
	resume, err := s.data.time("resumeAt")
	if err != nil {
		return err
	}
	if s.Type == WaitCreated {
		if err := d.onEnded(); err != nil {
			return err
		}
		if s.wait != nil {
			return conflict(CodeConflict, "Wait %s exists already", s.Correlation)
		}
		e := d.append(WaitCreated, s.Correlation, s.Data, false)
		d.wait = &wait{id: s.Correlation, Status: Waiting, Created: e.Created, Updated: e.Created, Resume: millis(resume)}
		d.create(kindWait, s.Correlation, d.wait)
	} else {
		switch {
		case s.wait == nil && d.legacy():
			d.append(WaitCompleted, s.Correlation, s.Data, false)
			return nil
		case s.wait == nil:
			return NotFound("Wait", s.Correlation)
		case s.wait.Status == Completed:
			return conflict(CodeConflict, "Wait %s is completed already", s.Correlation)
		}
		if err := d.onEnded(); err != nil {
			return err
		}
		e := d.append(WaitCompleted, s.Correlation, s.Data, false)
		after := *s.wait
		after.Status, after.Ended, after.Updated = Completed, e.Created, e.Created
		d.wait = &after
		d.put(keys.WorldEntity(s.RunID, kindWait, s.Correlation), d.wait, d.wait.unknown)
	}
	return nil
}

// An attributeChange sets an attribute, or removes it if it has no value.
type attributeChange struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
}

// What attributes may be.
const (
	maxAttributes     = 64
	maxAttributeKey   = 256 // characters
	maxAttributeValue = 256 // bytes
)

func (d *decision) attrSet() error {
	s := d.state
	if err := d.onEnded(); err != nil {
		return err
	}
	var changes []attributeChange
	if err := few.Unmarshal(s.data.get("changes"), &changes); err != nil || len(changes) == 0 {
		return Invalid("attr_set: eventData.changes is no list of {key, value}, is empty, or has more than 1,000")
	}
	writer, err := openData(s.data.get("writer"))
	if err != nil {
		return Invalid("attr_set: eventData.writer: %v", err)
	}
	by, err := writer.text("type")
	if err != nil || by != "workflow" && by != "step" {
		return Invalid("attr_set: eventData.writer.type is workflow or step, got %q", by)
	}
	if by == "workflow" && s.correlated {
		return conflict(CodeConflict, "Attributes were set by %s already", s.Correlation)
	}
	d.append(AttrSet, s.Correlation, s.Data, by != "workflow")
	return d.setAttributes(changes)
}

func (d *decision) setAttributes(changes []attributeChange) error {
	s := d.state
	reserved, err := s.data.flag("allowReservedAttributes")
	if err != nil {
		return err
	}
	after := &attributes{All: map[string]string{}}
	if s.attributes != nil {
		after.unknown = s.attributes.unknown
		maps.Copy(after.All, s.attributes.All)
	}
	slices.SortStableFunc(changes, func(a, b attributeChange) int { return strings.Compare(a.Key, b.Key) })
	for i, c := range changes {
		switch {
		case c.Key == "" || utf8.RuneCountInString(c.Key) > maxAttributeKey:
			return Invalid("An attribute's key has 1 to %d characters", maxAttributeKey)
		case strings.HasPrefix(c.Key, "$") && !reserved:
			return Invalid("Attribute %q: keys that begin with $ are reserved", c.Key)
		case c.Value != nil && len(*c.Value) > maxAttributeValue:
			return Invalid("Attribute %q: a value has at most %d bytes", c.Key, maxAttributeValue)
		case i > 0 && c.Key == changes[i-1].Key:
			return Invalid("Attribute %q is set twice", c.Key)
		case c.Value == nil:
			delete(after.All, c.Key)
		default:
			after.All[c.Key] = *c.Value
		}
	}
	if len(after.All) > maxAttributes {
		return Invalid("A run has at most %d attributes, it would have %d", maxAttributes, len(after.All))
	}
	d.put(keys.WorldAttributes(s.RunID), after, after.unknown)
	d.attributes = after
	return nil
}

// millis returns a time as it is stored.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(t.UnixMilli(), 1)
}
