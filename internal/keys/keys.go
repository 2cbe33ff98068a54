// Package keys makes every key that Weft puts into a store, in this one file.
//
// A key is a family name and components, joined by ':' and escaped, so that no
// id, name or key of a user's can reach into another's records. Families are
// additive: a scan of one never meets a record of another.
package keys

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft/storage"
)

// What each component may be at most, in bytes before escaping. With all of
// them at their limit the longest key, an activity's, has under 2,100 bytes.
const (
	MaxID             = 200
	MaxName           = 100
	MaxSignalID       = 128
	MaxIdempotencyKey = 200
	MaxBranchDepth    = 16
)

// Workflow is the key of a workflow record: wf:{id}.
func Workflow(id string) []byte { return key("wf:", id) }

// Input is where a workflow's input is: wf:{id}:in.
func Input(id string) []byte { return append(key("wf:", id), ":in"...) }

// Output is where a workflow's result or failure is: wf:{id}:out.
func Output(id string) []byte { return append(key("wf:", id), ":out"...) }

// Checkpoint is the key of checkpoint n: wf:{id}:ckpt:{n}.
func Checkpoint(id string, n uint64) []byte {
	return appendNumber(append(key("wf:", id), ":ckpt:"...), n, numberDigits)
}

// Checkpoints is the range of a workflow's checkpoints from number from on.
func Checkpoints(id string, from uint64) storage.Range {
	r := storage.Prefix(append(key("wf:", id), ":ckpt:"...))
	r.Start = Checkpoint(id, from)
	return r
}

// IsCheckpoint says whether k is the key of a checkpoint of a workflow's.
func IsCheckpoint(id string, k []byte) bool {
	return bytes.HasPrefix(k, append(key("wf:", id), ":ckpt:"...))
}

// Number reads the number at the end of a checkpoint or inbox key.
func Number(k []byte) (uint64, error) {
	i := strings.LastIndexByte(string(k), ':')
	n, err := strconv.ParseUint(string(k[i+1:]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: no number at the end of key %q", storage.ErrCorrupt, k)
	}
	return n, nil
}

// Signal is where the payload of an accepted signal waits: sig:{id}:{name}:{signal id}.
func Signal(id, name, signalID string) []byte { return key("sig:", id, name, signalID) }

// Signals is the range of a workflow's signals that wait.
func Signals(id string) storage.Range { return storage.Prefix(append(key("sig:", id), ':')) }

// SignalNames are the name and the signal id in the key of a signal.
func SignalNames(k []byte) (name, signalID string, err error) {
	parts, err := storage.SplitKey(k)
	if err != nil || len(parts) != 4 {
		return "", "", fmt.Errorf("%w: key %q", storage.ErrCorrupt, k)
	}
	return parts[2], parts[3], nil
}

// Inbox is a place in a workflow's order of acceptance: inbox:{id}:{seq}.
func Inbox(id string, seq uint64) []byte {
	return appendNumber(append(key("inbox:", id), ':'), seq, numberDigits)
}

// InboxFrom is the range of a workflow's inbox from seq on.
func InboxFrom(id string, seq uint64) storage.Range {
	r := storage.Prefix(append(key("inbox:", id), ':'))
	r.Start = Inbox(id, seq)
	return r
}

// Accepted is the accepted response of a signal: sigres:{id}:{name}:{signal id}.
func Accepted(id, name, signalID string) []byte { return key("sigres:", id, name, signalID) }

// SignalCounter counts what a workflow accepted: sigseq:{id}.
func SignalCounter(id string) []byte { return key("sigseq:", id) }

// Activity is what is known of one operation's effect:
// act:{id}:{activity}:{operation}:{idempotency key}.
func Activity(id, activity, operation, idempotencyKey string) []byte {
	return key("act:", id, activity, operation, idempotencyKey)
}

// ActivitiesOf is the range of what is known of a workflow's effects.
func ActivitiesOf(id string) storage.Range { return storage.Prefix(append(key("act:", id), ':')) }

// Beat is what an attempt last told of its progress: beat:{id}:{operation}.
func Beat(id, operation string) []byte { return key("beat:", id, operation) }

// Children are the ranges of everything that belongs to a workflow but its
// record: what a purge deletes.
func Children(id string) []storage.Range {
	var rs []storage.Range
	for _, family := range []string{"wf:", "sig:", "inbox:", "sigres:", "act:", "beat:", "kid:"} {
		rs = append(rs, storage.Prefix(append(key(family, id), ':')))
	}
	return append(rs, only(SignalCounter(id)))
}

// Child is what a workflow knows of one that it started: kid:{id}:{operation}.
func Child(id, operation string) []byte { return key("kid:", id, operation) }

// ChildrenOf is the range of all of these.
func ChildrenOf(id string) storage.Range { return storage.Prefix(append(key("kid:", id), ':')) }

// Engine is the record of one run of one engine: eng:{incarnation}.
func Engine(incarnation string) []byte { return key("eng:", incarnation) }

// Engines is the range of all engines.
func Engines() storage.Range { return storage.Prefix([]byte("eng:")) }

// Held says that an incarnation drives a workflow: held:{incarnation}:{id}.
func Held(incarnation, id string) []byte { return key("held:", incarnation, id) }

// HeldBy is the range of what an incarnation drives.
func HeldBy(incarnation string) storage.Range {
	return storage.Prefix(append(key("held:", incarnation), ':'))
}

// HeldAfter is the range of what incarnations after this one drive; "" is all.
func HeldAfter(incarnation string) storage.Range {
	r := storage.Prefix([]byte("held:"))
	if incarnation != "" {
		r.Start = HeldBy(incarnation).End
	}
	return r
}

// Todo says that an unclaimed workflow is to be looked at from a time on:
// todo:{shard}:{time}:{id}:{nonce}.
func Todo(shard int, at time.Time, id, nonce string) []byte {
	k := appendTime(todo(shard), at)
	return storage.AppendKey(append(k, ':'), id, nonce)
}

// TodoNow says that an unclaimed workflow is to be looked at now, whatever any clock
// says: todo:{shard}:-{time}:{id}:{nonce}. It sorts before all that is due at a time, and
// reads as a time before 1970. since is when it was written, by the clock of who did; it
// gives an order, and delays nothing.
func TodoNow(shard int, since time.Time, id, nonce string) []byte {
	k := appendTime(append(todo(shard), '-'), since)
	return storage.AppendKey(append(k, ':'), id, nonce)
}

// TodoParked is Todo for a run that was parked, with what the clock said then of who did:
// what that clock called later may be long past.
func TodoParked(shard int, at, parked time.Time, id, nonce string) []byte {
	return Todo(shard, at, id, nonce+"."+string(appendTime(nil, parked)))
}

// Parked is when the clock of who wrote a todo key said that it was, and false if the key
// does not tell.
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

// TodoOf is the range of what is due in a shard, ever.
func TodoOf(shard int) storage.Range { return storage.Prefix(todo(shard)) }

// TodoUntil is the range of what is due in a shard at a time.
func TodoUntil(shard int, at time.Time) storage.Range {
	end := append(appendTime(todo(shard), at), ';') // ';' is after ':'
	return storage.Range{Start: todo(shard), End: end}
}

// TodoDue is TodoUntil in three parts, in their order: what is due whatever any clock
// says, and was written up to that time; the same, and written later; and what is due at
// a time.
func TodoDue(shard int, at time.Time) (written, ahead, timed storage.Range) {
	nows := storage.Prefix(append(todo(shard), '-'))
	middle := append(appendTime(append(todo(shard), '-'), at), ';')
	written = storage.Range{Start: nows.Start, End: middle}
	ahead = storage.Range{Start: middle, End: nows.End}
	timed = storage.Range{Start: nows.End, End: TodoUntil(shard, at).End}
	return written, ahead, timed
}

// TodoNext is the range of what is due in a shard after a time.
func TodoNext(shard int, at time.Time) storage.Range {
	r := TodoOf(shard)
	r.Start = TodoUntil(shard, at).End
	return r
}

// Due is the time in a todo key. Of one that is due now, as TodoNow writes it, it is
// when that was written, and now is true.
func Due(k []byte) (at time.Time, now bool, err error) {
	at, err = timeIn(k, 2)
	if s, _ := nth(k, 2); strings.HasPrefix(s, "-") {
		return time.UnixMicro(-at.UnixMicro()), true, err
	}
	return at, false, err
}

// timeIn is the time that is the i-th component of a key.
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

// Todos is the range of all todo entries.
func Todos() storage.Range { return storage.Prefix([]byte("todo:")) }

func todo(shard int) []byte {
	return append(appendNumber([]byte("todo:"), uint64(shard), 3), ':')
}

// Line is a place in the line of a queue, where a run waits to be admitted:
// op:{queue}:{time}:{id}.
func Line(queue string, since time.Time, id string) []byte {
	return storage.AppendKey(append(appendTime(line(queue), since), ':'), id)
}

// LineOf is the range of a queue's line, the first first.
func LineOf(queue string) storage.Range { return storage.Prefix(line(queue)) }

func line(queue string) []byte { return append(key("op:", queue), ':') }

// Slot is a place among the admitted runs of a queue: slot:{queue}:{n}.
func Slot(queue string, n int) []byte {
	return appendNumber(append(key("slot:", queue), ':'), uint64(n), slotDigits)
}

// SlotsOf is the range of a queue's slots that are taken.
func SlotsOf(queue string) storage.Range { return storage.Prefix(append(key("slot:", queue), ':')) }

// Rate is when runs of a queue were admitted lately: rate:{queue}.
func Rate(queue string) []byte { return key("rate:", queue) }

// Wake says that something happened to a workflow that an incarnation drives:
// wake:{incarnation}:{id}:{nonce}.
func Wake(incarnation, id, nonce string) []byte { return key("wake:", incarnation, id, nonce) }

// Wakes is the range of all wakes.
func Wakes() storage.Range { return storage.Prefix([]byte("wake:")) }

// WakesOf is the range of the wakes of an incarnation.
func WakesOf(incarnation string) storage.Range {
	return storage.Prefix(append(key("wake:", incarnation), ':'))
}

// Index is a workflow's row in the list of all, in order of creation: ix:{generation}.
func Index(generation string) []byte { return key("ix:", generation) }

// IndexAll is the range of all rows of that list.
func IndexAll() storage.Range { return storage.Prefix([]byte("ix:")) }

// ExpiringTombstone says when the tombstone of a purged life may go:
// exp:{time}:tomb:{id}:{generation}.
func ExpiringTombstone(at time.Time, id, generation string) []byte {
	return storage.AppendKey(append(appendTime([]byte("exp:"), at), ":tomb:"...), id, generation)
}

// ExpiringSignal says when the accepted response of a signal may go:
// exp:{time}:sig:{id}:{name}:{signal id}.
func ExpiringSignal(at time.Time, id, name, signalID string) []byte {
	return storage.AppendKey(append(appendTime([]byte("exp:"), at), ":sig:"...), id, name, signalID)
}

// Expiring splits the key of something that expires: its kind, "tomb" or "sig",
// and what names it.
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

// Expires is the time in an exp key.
func Expires(k []byte) (time.Time, error) { return timeIn(k, 1) }

// Meta is a record of the store as a whole: meta:{name}.
func Meta(name string) []byte { return key("meta:", name) }

// Last is the last component of a key, unescaped.
func Last(k []byte) (string, error) { return nth(k, -1) }

// ID is the workflow id in a held, todo, op, wake or exp key.
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

// Incarnation is the incarnation in a held or a wake key.
func Incarnation(k []byte) (string, error) { return nth(k, 1) }

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

func key(family string, components ...string) []byte {
	n := len(family) + len(components) + 32 // and what callers append
	for _, c := range components {
		n += len(c)
	}
	return storage.AppendKey(append(make([]byte, 0, n), family...), components...)
}

func only(k []byte) storage.Range {
	return storage.Range{Start: k, End: append(append([]byte{}, k...), 0)}
}

const (
	numberDigits = 20 // of the largest uint64
	timeDigits   = 16 // of microseconds: until the year 2286
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
