// Package keys constructs every key that Weft puts into a store.
//
// A key is the name of a family and components, joined by ':' and escaped, so that no id,
// name or key of a user can collide with other records. Families are independent: a scan
// of one never returns a record of another.
package keys

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft/storage"
)

// PayloadPage is how many records of a range are read at once if each may have a large value.
const PayloadPage = 16

// Maximum lengths of components, in bytes before escaping. With all of them at their
// maximum, the longest key, that of an activity, has less than 2,100 bytes.
const (
	MaxID             = 200
	MaxName           = 100
	MaxSignalID       = 128
	MaxIdempotencyKey = 200
	MaxBranchDepth    = 16
	MaxToken          = 512 // only its hash is in keys
)

// Workflow is the key of a workflow record: wf:{id}.
func Workflow(id string) []byte { return key("wf:", id) }

// Input is the key of a workflow's input: wf:{id}:in.
func Input(id string) []byte { return append(key("wf:", id), ":in"...) }

// Output is the key of a workflow's result or failure: wf:{id}:out.
func Output(id string) []byte { return append(key("wf:", id), ":out"...) }

// Published is the key of a value that a workflow has published: wf:{id}:pub:{name}.
func Published(id, name string) []byte { return storage.AppendKey(published(id), name) }

// PublishedBy is the range of the values that a workflow has published, in the order of their
// names.
func PublishedBy(id string) storage.Range { return storage.Prefix(published(id)) }

func published(id string) []byte { return append(key("wf:", id), ":pub:"...) }

// A Log is where the checkpoints of a workflow are.
type Log struct{ family, owner, end string }

// LogOf is the log of a generation of a workflow. Generations rise with time: what is appended to workflows
// that began at about the same time is stored side by side, whatever their ids are.
func LogOf(generation string) Log { return Log{"log:", generation, ":"} }

// LogUnder is the log of a workflow that was started by a release which stored checkpoints under its id.
func LogUnder(id string) Log { return Log{"wf:", id, ":ckpt:"} }

// Prefix is what the keys of the checkpoints begin with: log:{generation}: or wf:{id}:ckpt:.
func (l Log) Prefix() []byte {
	return append(roomy(len(l.end)+numberDigits, l.family, l.owner), l.end...)
}

// Checkpoint is the key of checkpoint n: log:{generation}:{n} or wf:{id}:ckpt:{n}.
func (l Log) Checkpoint(n uint64) []byte { return appendNumber(l.Prefix(), n, numberDigits) }

// All is the range of the checkpoints.
func (l Log) All() storage.Range { return storage.Prefix(l.Prefix()) }

// From is the range of the checkpoints, starting at number n.
func (l Log) From(n uint64) storage.Range {
	r := l.All()
	r.Start = l.Checkpoint(n)
	return r
}

// Has reports whether k is the key of a checkpoint.
func (l Log) Has(k []byte) bool { return bytes.HasPrefix(k, l.Prefix()) }

// Number returns the number at the end of a checkpoint, inbox or chunk key.
func Number(k []byte) (uint64, error) {
	i := strings.LastIndexByte(string(k), ':')
	n, err := strconv.ParseUint(string(k[i+1:]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: no number at the end of key %q", storage.ErrCorrupt, k)
	}
	return n, nil
}

// Signal is the key of the payload of a pending accepted signal: sig:{id}:{name}:{signal id}.
func Signal(id, name, signalID string) []byte { return key("sig:", id, name, signalID) }

// Signals is the range of a workflow's pending signals.
func Signals(id string) storage.Range { return storage.Prefix(append(key("sig:", id), ':')) }

// SignalNames returns the name and the signal id from the key of a signal.
func SignalNames(k []byte) (name, signalID string, err error) {
	parts, err := storage.SplitKey(k)
	if err != nil || len(parts) != 4 {
		return "", "", fmt.Errorf("%w: key %q", storage.ErrCorrupt, k)
	}
	return parts[2], parts[3], nil
}

// Inbox is the key of entry seq in a workflow's order of acceptance: inbox:{id}:{seq}.
func Inbox(id string, seq uint64) []byte {
	return appendNumber(append(roomy(1+numberDigits, "inbox:", id), ':'), seq, numberDigits)
}

// InboxFrom is the range of a workflow's inbox, starting at seq.
func InboxFrom(id string, seq uint64) storage.Range {
	r := storage.Prefix(append(key("inbox:", id), ':'))
	r.Start = Inbox(id, seq)
	return r
}

// Accepted is the key of the accepted response of a signal: sigres:{id}:{name}:{signal id}.
func Accepted(id, name, signalID string) []byte { return key("sigres:", id, name, signalID) }

// AcceptedOf is the range of the accepted responses of a workflow's signals.
func AcceptedOf(id string) storage.Range { return storage.Prefix(append(key("sigres:", id), ':')) }

// SignalCounter is the key of a workflow's counter of accepted signals: sigseq:{id}.
func SignalCounter(id string) []byte { return key("sigseq:", id) }

// Update is the key of an update that a workflow has not accepted or refused yet: upd:{id}:{update}.
func Update(id, update string) []byte { return key("upd:", id, update) }

// UpdatesOf is the range of a workflow's updates that are not accepted or refused yet.
func UpdatesOf(id string) storage.Range { return storage.Prefix(append(key("upd:", id), ':')) }

// Answer is the key of the acceptance, and later of the answer, of an update: upr:{id}:{update}.
func Answer(id, update string) []byte { return key("upr:", id, update) }

// AnswersOf is the range of the acceptances and answers of a workflow's updates.
func AnswersOf(id string) storage.Range { return storage.Prefix(append(key("upr:", id), ':')) }

// Activity is the key of the record of one operation's effect:
// act:{id}:{activity}:{operation}:{idempotency key}.
func Activity(id, activity, operation, idempotencyKey string) []byte {
	return key("act:", id, activity, operation, idempotencyKey)
}

// ActivitiesOf is the range of the records of a workflow's effects.
func ActivitiesOf(id string) storage.Range { return storage.Prefix(append(key("act:", id), ':')) }

// Beat is the key of the progress that an attempt reported last: beat:{id}:{operation}.
func Beat(id, operation string) []byte { return key("beat:", id, operation) }

// BeatsOf is the range of the progress of a workflow's attempts.
func BeatsOf(id string) storage.Range { return storage.Prefix(append(key("beat:", id), ':')) }

// Operation returns the operation in an act, beat or kid key.
func Operation(k []byte) (string, error) {
	if bytes.HasPrefix(k, []byte("act:")) {
		return nth(k, 3)
	}
	return nth(k, 2)
}

// TokenHash returns what keys have of the token of a hook. A token itself is in no key.
func TokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// HookAddress is the key that tells which open hook has a token: hook:{hash of the token}.
func HookAddress(hash string) []byte { return key("hook:", hash) }

// HookAddresses is the range of the addresses of all hooks.
var HookAddresses = storage.Prefix([]byte("hook:"))

// Hook is the key of a workflow's record of a hook: hk:{id}:{hook}.
func Hook(id, hook string) []byte { return key("hk:", id, hook) }

// HooksOf is the range of a workflow's records of its hooks.
func HooksOf(id string) storage.Range { return storage.Prefix(append(key("hk:", id), ':')) }

// Resumed is the key of the first answer to a resume with an ID:
// hres:{hash of the token}:{signal id}.
func Resumed(hash, signalID string) []byte { return key("hres:", hash, signalID) }

// Stream is the key of the head of a workflow's stream: stream:{id}:{name}.
func Stream(id, name string) []byte { return key("stream:", id, name) }

// StreamsOf is the range of the heads of a workflow's streams.
func StreamsOf(id string) storage.Range { return storage.Prefix(append(key("stream:", id), ':')) }

// ChunksOf is what the keys of the chunks of a workflow's stream begin with: chunk:{id}:{name}:
func ChunksOf(id, name string) []byte { return append(key("chunk:", id, name), ':') }

// AllChunksOf is the range of the chunks of all streams of a workflow. Each may be large.
func AllChunksOf(id string) storage.Range { return storage.Prefix(append(key("chunk:", id), ':')) }

// Chunk is the key of chunk n of the log whose keys begin with prefix, such as ChunksOf.
func Chunk(prefix []byte, n uint64) []byte {
	return appendNumber(append(make([]byte, 0, len(prefix)+numberDigits), prefix...), n, numberDigits)
}

// ChunksFrom is the range of the chunks of a log, starting at number n.
func ChunksFrom(prefix []byte, n uint64) storage.Range {
	r := storage.Prefix(prefix)
	r.Start = Chunk(prefix, n)
	return r
}

// Features are what only some workflows have records for.
type Features struct{ Signals, Updates, Hooks, Streams bool }

// AllFeatures are those of a workflow of which nothing else is known.
var AllFeatures = Features{Signals: true, Updates: true, Hooks: true, Streams: true}

// ChildrenAmong returns the ranges of everything that is stored under the id of a workflow, except for its record and its
// chunks, see AllChunksOf. It leaves out those that are empty because the workflow has never had what they are for: a
// reader of many small workflows saves most of its reads.
func ChildrenAmong(id string, has Features) (rs []storage.Range) {
	families := []string{"wf:", "act:", "beat:", "kid:"}
	if has.Signals {
		families = append(families, "sig:", "inbox:", "sigres:")
		rs = append(rs, only(SignalCounter(id)))
	}
	if has.Updates {
		families = append(families, "upd:", "upr:")
	}
	if has.Hooks {
		families = append(families, "hk:")
	}
	if has.Streams {
		families = append(families, "stream:")
	}
	for _, family := range families {
		rs = append(rs, storage.Prefix(append(key(family, id), ':')))
	}
	return rs
}

// Child is the key of a workflow's record of a child that it started: kid:{id}:{operation}.
func Child(id, operation string) []byte { return key("kid:", id, operation) }

// ChildrenOf is the range of a workflow's records of its children.
func ChildrenOf(id string) storage.Range { return storage.Prefix(append(key("kid:", id), ':')) }

// Engine is the key of the record of one incarnation of an engine: eng:{incarnation}.
func Engine(incarnation string) []byte { return key("eng:", incarnation) }

// Engines is the range of all engines.
func Engines() storage.Range { return storage.Prefix([]byte("eng:")) }

// Held is the key that marks a workflow as owned by an incarnation: held:{incarnation}:{id}.
func Held(incarnation, id string) []byte { return key("held:", incarnation, id) }

// HeldBy is the range of the Held keys of an incarnation.
func HeldBy(incarnation string) storage.Range {
	return storage.Prefix(append(key("held:", incarnation), ':'))
}

// HeldAfter is the range of the Held keys of all later incarnations; "" means of all.
func HeldAfter(incarnation string) storage.Range {
	r := storage.Prefix([]byte("held:"))
	if incarnation != "" {
		r.Start = HeldBy(incarnation).End
	}
	return r
}

// Todo is the key of an entry that says that an unclaimed workflow is due at a time:
// todo:{shard}:{time}:{id}:{nonce}.
func Todo(shard int, at time.Time, id, nonce string) []byte {
	k := appendTime(todo(shard), at)
	return storage.AppendKey(append(k, ':'), id, nonce)
}

// TodoNow is the key of an entry that says that an unclaimed workflow is due now, regardless
// of any clock: todo:{shard}:-{time}:{id}:{nonce}. It sorts before all entries with a due
// time, and reads as a time before 1970. since is when it was written, by the writer's clock;
// it only determines the order.
func TodoNow(shard int, since time.Time, id, nonce string) []byte {
	k := appendTime(append(todo(shard), '-'), since)
	return storage.AppendKey(append(k, ':'), id, nonce)
}

// TodoParked is Todo for a parked run. The key also has the time at which the run was parked,
// by the writer's clock: by another clock, the due time may be long past.
func TodoParked(shard int, at, parked time.Time, id, nonce string) []byte {
	return Todo(shard, at, id, nonce+"."+string(appendTime(nil, parked)))
}

// Parked returns the time at which a run was parked, by the writer's clock. It returns false
// if the todo key does not have one.
func Parked(k []byte) (at time.Time, ok bool) {
	nonce, err := Last(k)
	if err != nil {
		return time.Time{}, false
	}
	_, micro, ok := strings.Cut(nonce, ".")
	if !ok || len(micro) != timeDigits {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(micro, 10, 64)
	return time.UnixMicro(n), err == nil
}

// TodoOf is the range of all entries of a shard.
func TodoOf(shard int) storage.Range { return storage.Prefix(todo(shard)) }

// TodoUntil is the range of the entries of a shard that are due at a time.
func TodoUntil(shard int, at time.Time) storage.Range {
	end := append(appendTime(todo(shard), at), ';') // ';' is after ':'
	return storage.Range{Start: todo(shard), End: end}
}

// TodoDue splits TodoUntil into three consecutive ranges: entries of TodoNow that were
// written up to the time at, entries of TodoNow that were written later, and entries with a
// due time.
func TodoDue(shard int, at time.Time) (written, ahead, timed storage.Range) {
	nows := storage.Prefix(append(todo(shard), '-'))
	middle := append(appendTime(append(todo(shard), '-'), at), ';')
	written = storage.Range{Start: nows.Start, End: middle}
	ahead = storage.Range{Start: middle, End: nows.End}
	timed = storage.Range{Start: nows.End, End: TodoUntil(shard, at).End}
	return written, ahead, timed
}

// TodoNext is the range of the entries of a shard that become due after a time.
func TodoNext(shard int, at time.Time) storage.Range {
	r := TodoOf(shard)
	r.Start = TodoUntil(shard, at).End
	return r
}

// Due returns the due time in a todo key. For a key of TodoNow it returns the time at which
// the entry was written, and now is true.
func Due(k []byte) (at time.Time, now bool, err error) {
	at, err = timeIn(k, 2)
	if s, _ := nth(k, 2); strings.HasPrefix(s, "-") {
		return time.UnixMicro(-at.UnixMicro()), true, err
	}
	return at, false, err
}

// timeIn returns the time in the i-th component of a key.
func timeIn(k []byte, i int) (time.Time, error) {
	s, err := nth(k, i)
	if err != nil {
		return time.Time{}, err
	}
	micro, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: no time in key %q", storage.ErrCorrupt, k)
	}
	return time.UnixMicro(micro), nil
}

// Lines is the range of the lines of all queues.
func Lines() storage.Range { return storage.Prefix([]byte("op:")) }

// Todos is the range of all todo entries.
func Todos() storage.Range { return storage.Prefix([]byte("todo:")) }

func todo(shard int) []byte {
	return append(appendNumber([]byte("todo:"), uint64(shard), 3), ':')
}

// Line is the key of a run that waits in a queue to be admitted:
// op:{queue}:{time}:{id}.
func Line(queue string, since time.Time, id string) []byte {
	return storage.AppendKey(append(appendTime(line(queue), since), ':'), id)
}

// LineOf is the range of the runs that wait in a queue, oldest first.
func LineOf(queue string) storage.Range { return storage.Prefix(line(queue)) }

// LineSince returns the time in a Line key.
func LineSince(k []byte) (time.Time, error) { return timeIn(k, 2) }

func line(queue string) []byte { return append(key("op:", queue), ':') }

// Slot is the key of a slot of a queue for an admitted run: slot:{queue}:{n}.
func Slot(queue string, n int) []byte {
	return appendNumber(append(key("slot:", queue), ':'), uint64(n), slotDigits)
}

// SlotsOf is the range of a queue's occupied slots.
func SlotsOf(queue string) storage.Range { return storage.Prefix(append(key("slot:", queue), ':')) }

// Rate is the key of the times of a queue's recent admissions: rate:{queue}.
func Rate(queue string) []byte { return key("rate:", queue) }

// Wake is the key that tells an incarnation that something happened to a workflow that it
// owns: wake:{incarnation}:{id}:{nonce}.
func Wake(incarnation, id, nonce string) []byte { return key("wake:", incarnation, id, nonce) }

// Wakes is the range of all wakes.
func Wakes() storage.Range { return storage.Prefix([]byte("wake:")) }

// WakesOf is the range of the wakes of an incarnation.
func WakesOf(incarnation string) storage.Range {
	return storage.Prefix(append(key("wake:", incarnation), ':'))
}

// Index is the key of a workflow in the list of all, in order of creation: ix:{generation}.
func Index(generation string) []byte { return key("ix:", generation) }

// IndexAll is the range of that list.
func IndexAll() storage.Range { return storage.Prefix([]byte("ix:")) }

// Listed is the key of a workflow in the list of a type and a status, in the order in which
// workflows came into the status: ls:{type}:{status}:{time}:{generation}.
func Listed(workflow, status string, since time.Time, generation string) []byte {
	return inList(roomy(len("::")+timeDigits+len(generation), "ls:", workflow, status), since, generation)
}

// inList appends a workflow's place in a list to the key of the list.
func inList(list []byte, since time.Time, generation string) []byte {
	return storage.AppendKey(append(appendTime(append(list, ':'), since), ':'), generation)
}

// ListOf is the range of the list of a type and a status.
func ListOf(workflow, status string) storage.Range {
	return storage.Prefix(append(key("ls:", workflow, status), ':'))
}

// Lists is the range of the lists of all types.
func Lists() storage.Range { return storage.Prefix([]byte("ls:")) }

// ListedType returns the type in a Listed key, and the end of the lists of the type.
func ListedType(k []byte) (workflow string, end []byte, err error) {
	if workflow, err = nth(k, 1); err == nil && workflow == "" {
		err = fmt.Errorf("%w: key %q", storage.ErrCorrupt, k)
	}
	return workflow, storage.Prefix(append(key("ls:", workflow), ':')).End, err
}

// ListedSince returns the time in a Listed key.
func ListedSince(k []byte) (time.Time, error) { return timeIn(k, 3) }

// Labelled is the key of a workflow in the list of a label, a value and a status:
// ll:{label}:{value}:{status}:{time}:{generation}.
func Labelled(label, value, status string, since time.Time, generation string) []byte {
	return inList(roomy(len("::")+timeDigits+len(generation), "ll:", label, value, status), since, generation)
}

// LabelledOf is the range of the list of a label, a value and a status.
func LabelledOf(label, value, status string) storage.Range {
	return storage.Prefix(append(key("ll:", label, value, status), ':'))
}

// ListedChild is the key of a workflow in the list of its parent's children:
// lp:{parent}:{generation}.
func ListedChild(parent, generation string) []byte { return key("lp:", parent, generation) }

// ListOfChildren is the range of the list of a parent's children, in order of creation.
func ListOfChildren(parent string) storage.Range {
	return storage.Prefix(append(key("lp:", parent), ':'))
}

// Attended is the key of a workflow in the list of those whose record has an Attention:
// la:{generation}.
func Attended(generation string) []byte { return key("la:", generation) }

// AttendedAll is the range of that list, in order of creation.
func AttendedAll() storage.Range { return storage.Prefix([]byte("la:")) }

// Between restricts a list in the order of times, ListOf or LabelledOf, to the times from
// after to before, which is excluded. A zero time is no bound. Times in lists are whole
// microseconds.
func Between(list storage.Range, after, before time.Time) storage.Range {
	prefix := list.Start
	if !after.IsZero() {
		list.Start = appendTime(bytes.Clone(prefix), after.Add(999))
	}
	if !before.IsZero() {
		list.End = appendTime(bytes.Clone(prefix), before.Add(999))
	}
	return list
}

// WorkflowsBy is the range of the records of workflows with ids that begin with prefix, and of
// what is stored under these ids.
func WorkflowsBy(prefix string) storage.Range { return storage.Prefix(key("wf:", prefix)) }

// UnderWorkflow splits k, a key in a range of WorkflowsBy. own reports whether it is the record
// of the workflow itself. Otherwise all keys before end, from k on, belong to the workflow.
func UnderWorkflow(k []byte) (id string, own bool, end []byte, err error) {
	parts, err := storage.SplitKey(k)
	if err != nil || len(parts) < 2 {
		return "", false, nil, fmt.Errorf("%w: key %q", storage.ErrCorrupt, k)
	}
	return parts[1], len(parts) == 2, storage.Prefix(append(key("wf:", parts[1]), ':')).End, nil
}

// ExpiringTombstone is the key that says when the tombstone of a purged generation expires:
// exp:{time}:tomb:{id}:{generation}.
func ExpiringTombstone(at time.Time, id, generation string) []byte {
	return storage.AppendKey(append(appendTime([]byte("exp:"), at), ":tomb:"...), id, generation)
}

// ExpiringSignal is the key that says when the accepted response of a signal expires:
// exp:{time}:sig:{id}:{name}:{signal id}.
func ExpiringSignal(at time.Time, id, name, signalID string) []byte {
	return storage.AppendKey(append(appendTime([]byte("exp:"), at), ":sig:"...), id, name, signalID)
}

// ExpiringResumed is the key that says when the first answer to a resume expires:
// exp:{time}:hres:{hash of the token}:{signal id}.
func ExpiringResumed(at time.Time, hash, signalID string) []byte {
	return storage.AppendKey(append(appendTime([]byte("exp:"), at), ":hres:"...), hash, signalID)
}

// ExpiringAnswer is the key that says when the answer of an update expires:
// exp:{time}:upd:{id}:{update}.
func ExpiringAnswer(at time.Time, id, update string) []byte {
	return storage.AppendKey(append(appendTime([]byte("exp:"), at), ":upd:"...), id, update)
}

// Dismissal is the key that says that the children of a terminated generation are still to be
// asked to stop: exp:{0}:kids:{id}:{generation}. It is due whatever a clock says.
func Dismissal(id, generation string) []byte {
	return storage.AppendKey(dismissals(), id, generation)
}

// Dismissals is the range of the Dismissal keys.
func Dismissals() storage.Range { return storage.Prefix(dismissals()) }

func dismissals() []byte { return append(appendTime([]byte("exp:"), time.UnixMicro(0)), ":kids:"...) }

// FormerLife is the key that says when what earlier lives of a generation have left is removed:
// exp:{time}:life:{id}:{generation}.
func FormerLife(at time.Time, id, generation string) []byte {
	return storage.AppendKey(append(appendTime([]byte("exp:"), at), ":life:"...), id, generation)
}

// Expiring splits an exp key: kind is "tomb", "sig", "upd", "hres", "kids" or "life", and names are the
// components after it.
func Expiring(k []byte) (kind string, names []string, err error) {
	parts, err := storage.SplitKey(k)
	if err != nil || len(parts) < 4 {
		return "", nil, fmt.Errorf("%w: key %q", storage.ErrCorrupt, k)
	}
	return parts[2], parts[3:], nil
}

// ExpiredAt is the range of what has expired at a time.
func ExpiredAt(at time.Time) storage.Range {
	return storage.Range{Start: []byte("exp:"), End: append(appendTime([]byte("exp:"), at), ';')}
}

// ExpiresNext is the range of what expires after a time.
func ExpiresNext(at time.Time) storage.Range {
	r := storage.Prefix([]byte("exp:"))
	r.Start = ExpiredAt(at).End
	return r
}

// Expires returns the time in an exp key.
func Expires(k []byte) (time.Time, error) { return timeIn(k, 1) }

// Deployment is the key of what is known of a deployment: dep:{id}.
func Deployment(id string) []byte { return key("dep:", id) }

// Deployments is the range of all deployments, in the order of their ids.
func Deployments() storage.Range { return storage.Prefix([]byte("dep:")) }

// Schedule is the key of a schedule: sch:{id}.
func Schedule(id string) []byte { return key("sch:", id) }

// Schedules is the range of the schedules with ids that begin with prefix, in the order of their
// ids.
func Schedules(prefix string) storage.Range { return storage.Prefix(key("sch:", prefix)) }

// ScheduleDue is the key of the entry that says when to look at a schedule: due:{time}:sch:{id}.
func ScheduleDue(at time.Time, id string) []byte {
	return storage.AppendKey(append(appendTime([]byte("due:"), at), ":sch:"...), id)
}

// ScheduleHint is the key of an entry to look at a schedule, due whatever a clock says:
// due:{0}:sch:{id}.
func ScheduleHint(id string) []byte { return ScheduleDue(time.UnixMicro(0), id) }

// DueOf splits a due key: kind is "sch", and id names what is to be looked at.
func DueOf(k []byte) (kind, id string, err error) {
	parts, err := storage.SplitKey(k)
	if err != nil || len(parts) != 4 {
		return "", "", fmt.Errorf("%w: key %q", storage.ErrCorrupt, k)
	}
	return parts[2], parts[3], nil
}

// DueTime returns the time in a due key.
func DueTime(k []byte) (time.Time, error) { return timeIn(k, 1) }

// DueAll is the range of all due entries, in the order of their times.
func DueAll() storage.Range { return storage.Prefix([]byte("due:")) }

// DueUntil is the range of the entries that are due at a time.
func DueUntil(at time.Time) storage.Range {
	return storage.Range{Start: []byte("due:"), End: append(appendTime([]byte("due:"), at), ';')}
}

// DueNext is the range of the entries that become due after a time.
func DueNext(at time.Time) storage.Range {
	r := DueAll()
	r.Start = DueUntil(at).End
	return r
}

// Bulk is the key of a bulk operation: bulk:{id}.
func Bulk(id string) []byte { return key("bulk:", id) }

// Bulks is the range of all bulk operations, in the order of their ids.
func Bulks() storage.Range { return BulksOf("") }

// BulksOf is the range of the bulk operations whose ids have a prefix.
func BulksOf(prefix string) storage.Range { return storage.Prefix(key("bulk:", prefix)) }

// BulkRefusals is the key of some of the workflows that a bulk operation has refused: bref:{id}:{n}.
func BulkRefusals(id string, n int) []byte {
	return appendNumber(append(key("bref:", id), ':'), uint64(n), numberDigits)
}

// BulkRefusalsOf is the range of all that a bulk operation has refused, in order.
func BulkRefusalsOf(id string) storage.Range { return storage.Prefix(append(key("bref:", id), ':')) }

// Meta is the key of a record about the store as a whole: meta:{name}.
func Meta(name string) []byte { return key("meta:", name) }

// Last returns the last component of a key, unescaped.
func Last(k []byte) (string, error) { return nth(k, -1) }

// ID returns the workflow id in a held, todo, op, wake or exp key.
func ID(k []byte) (string, error) {
	switch family, _, _ := strings.Cut(string(k), ":"); family {
	case "held", "wake":
		return nth(k, 2)
	case "todo", "op", "exp":
		return nth(k, 3)
	default:
		return "", fmt.Errorf("%w: no workflow id in key %q", storage.ErrCorrupt, k)
	}
}

// Incarnation returns the incarnation in a held or wake key. None has an empty name.
func Incarnation(k []byte) (string, error) {
	name, err := nth(k, 1)
	if err == nil && name == "" {
		return "", fmt.Errorf("%w: key %q names no incarnation", storage.ErrCorrupt, k)
	}
	return name, err
}

func nth(k []byte, i int) (string, error) {
	parts, err := storage.SplitKey(k)
	if err == nil && i < 0 {
		i += len(parts)
	}
	if err != nil || i >= len(parts) {
		return "", fmt.Errorf("%w: key %q", storage.ErrCorrupt, k)
	}
	return parts[i], nil
}

// key returns a key with room for a short suffix.
func key(family string, components ...string) []byte { return roomy(8, family, components...) }

// roomy returns a key with room for as many bytes behind it.
func roomy(room int, family string, components ...string) []byte {
	n := len(family) + len(components) + room
	for _, c := range components {
		n += len(c)
	}
	return storage.AppendKey(append(make([]byte, 0, n), family...), components...)
}

func only(k []byte) storage.Range {
	return storage.Range{Start: k, End: append(append([]byte{}, k...), 0)}
}

const (
	numberDigits = 20 // for the largest uint64
	timeDigits   = 16 // in microseconds, until the year 2286
	slotDigits   = 5
)

func appendNumber(dst []byte, n uint64, digits int) []byte {
	var b [20]byte
	s := strconv.AppendUint(b[:0], n, 10)
	for i := len(s); i < digits; i++ {
		dst = append(dst, '0')
	}
	return append(dst, s...)
}

func appendTime(dst []byte, t time.Time) []byte {
	const last = 9_999_999_999_999_999
	return appendNumber(dst, uint64(min(max(t.UnixMicro(), 0), last)), timeDigits)
}
