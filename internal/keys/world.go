package keys

import (
	"fmt"
	"time"

	"github.com/weft-go/weft/storage"
)

// The records of the world, on which the TypeScript runtime runs. Its queues come first.

// MaxQueueKey is the maximum length of the key that deduplicates messages.
const MaxQueueKey = 512

// MaxRequestID is the maximum length of the name of a call, by which a repetition of it is known.
const MaxRequestID = 200

// QueueMessage is the key of a message of a queue: wmsg:{queue}:{id}.
func QueueMessage(queue, id string) []byte { return key("wmsg:", queue, id) }

// QueueDue is the key of a message that waits for its time: wdue:{queue}:{time}:{id}.
func QueueDue(queue string, at time.Time, id string) []byte { return queueTime("wdue:", queue, at, id) }

// QueueDueOf is the range of the messages of a queue that wait, those that are due first.
func QueueDueOf(queue string) storage.Range { return storage.Prefix(append(key("wdue:", queue), ':')) }

// QueuesDue is the range of the messages of all queues that wait.
func QueuesDue() storage.Range { return storage.Prefix([]byte("wdue:")) }

// QueueHeld is the key of a message that somebody holds until a time: wheld:{queue}:{time}:{id}.
func QueueHeld(queue string, until time.Time, id string) []byte {
	return queueTime("wheld:", queue, until, id)
}

// QueueHeldUntil is the range of the messages of a queue that are held until a time or an earlier one.
func QueueHeldUntil(queue string, at time.Time) storage.Range {
	start := append(key("wheld:", queue), ':')
	return storage.Range{Start: start, End: append(appendTime(append([]byte{}, start...), at), ';')}
}

// QueueTime splits a key of QueueDue or QueueHeld.
func QueueTime(k []byte) (queue string, at time.Time, id string, err error) {
	parts, err := storage.SplitKey(k)
	if err != nil || len(parts) != 4 {
		return "", time.Time{}, "", fmt.Errorf("%w: key %q", storage.ErrCorrupt, k)
	}
	at, err = timeIn(k, 2)
	return parts[1], at, parts[3], err
}

// QueueKey is the key that says which message was published with a key: wkey:{queue}:{key}.
func QueueKey(queue, k string) []byte { return key("wkey:", queue, k) }

// QueueKeyPast is the key that says when the window of a QueueKey ends:
// wexp:key:{time}:{queue}:{key}.
func QueueKeyPast(at time.Time, queue, k string) []byte {
	return storage.AppendKey(append(appendTime([]byte("wexp:key:"), at), ':'), queue, k)
}

// QueueKeysPast is the range of the QueueKeyPast keys of a time and earlier ones.
func QueueKeysPast(at time.Time) storage.Range {
	return storage.Range{Start: []byte("wexp:key:"), End: append(appendTime([]byte("wexp:key:"), at), ';')}
}

// QueueKeyPastNames splits a key of QueueKeyPast.
func QueueKeyPastNames(k []byte) (at time.Time, queue, name string, err error) {
	parts, err := storage.SplitKey(k)
	if err != nil || len(parts) != 5 {
		return time.Time{}, "", "", fmt.Errorf("%w: key %q", storage.ErrCorrupt, k)
	}
	at, err = timeIn(k, 2)
	return at, parts[3], parts[4], err
}

func queueTime(family, queue string, at time.Time, id string) []byte {
	return storage.AppendKey(append(appendTime(append(key(family, queue), ':'), at), ':'), id)
}

// World is the key of the head of a run of the world: world:{run}.
func World(run string) []byte { return key("world:", run) }

// WorldEvent is the key of event n of a run: world:{run}:ev:{n}.
func WorldEvent(run string, n uint64) []byte {
	return appendNumber(append(key("world:", run), ":ev:"...), n, numberDigits)
}

// WorldEvents is the range of the events of a run.
func WorldEvents(run string) storage.Range {
	return storage.Prefix(append(key("world:", run), ":ev:"...))
}

// WorldEntity is the key of a step, hook or wait of a run, or of what is known of the id of a resume:
// world:{run}:{st, hk, wt or rs}:{id}.
func WorldEntity(run, kind, id string) []byte {
	return storage.AppendKey(append(key("world:", run), ':'), kind, id)
}

// WorldEntities is the range of the WorldEntity keys of a run of one kind, in the order of their ids.
func WorldEntities(run, kind string) storage.Range {
	return storage.Prefix(WorldEntity(run, kind, ""))
}

// WorldAttributes is the key of the attributes of a run: world:{run}:at.
func WorldAttributes(run string) []byte { return append(key("world:", run), ":at"...) }

// WorldToken is the key that says which open hook has a token: wtok:{hash of the token}.
func WorldToken(hash string) []byte { return key("wtok:", hash) }

// WorldHookRun is the key that says which run has an open hook: whk:{hook}.
func WorldHookRun(hook string) []byte { return key("whk:", hook) }

// WorldHookRuns is the range of the WorldHookRun keys, in the order of the ids of hooks.
func WorldHookRuns() storage.Range { return storage.Prefix([]byte("whk:")) }

// WorldCorrelated is the key of event n of a run in the list of a correlation: wcor:{correlation}:{run}:{n}.
func WorldCorrelated(correlation, run string, n uint64) []byte {
	return appendNumber(append(key("wcor:", correlation, run), ':'), n, numberDigits)
}

// WorldCorrelations is the range of that list, or, if a run is named, of its part.
func WorldCorrelations(correlation, run string) storage.Range {
	if run == "" {
		return storage.Prefix(append(key("wcor:", correlation), ':'))
	}
	return storage.Prefix(append(key("wcor:", correlation, run), ':'))
}

// WorldCorrelatedRun returns the run in a WorldCorrelated key.
func WorldCorrelatedRun(k []byte) (run string, err error) { return nth(k, 2) }

// WorldListed is the key of a run in a list: wix:{all, status or name}:{value}:{run}.
func WorldListed(list, value, run string) []byte { return key("wix:", list, value, run) }

// WorldList is the range of a list.
func WorldList(list, value string) storage.Range {
	return storage.Prefix(append(key("wix:", list, value), ':'))
}

// WorldStream is the key of the head of a stream of a run: wstream:{run}:{name}.
func WorldStream(run, name string) []byte { return key("wstream:", run, name) }

// WorldStreamsOf is the range of the heads of the streams of a run, in the order of their names.
func WorldStreamsOf(run string) storage.Range {
	return storage.Prefix(append(key("wstream:", run), ':'))
}

// WorldChunksOf is what the keys of the chunks of a stream begin with: wchunk:{run}:{name}:
func WorldChunksOf(run, name string) []byte { return append(key("wchunk:", run, name), ':') }

// WorldStreamNamed is the key of a run in the list of those that have a stream of a name: wsname:{name}:{run}.
func WorldStreamNamed(name, run string) []byte { return key("wsname:", name, run) }

// WorldStreamsNamed is the range of that list.
func WorldStreamsNamed(name string) storage.Range {
	return storage.Prefix(append(key("wsname:", name), ':'))
}

// What a WorldExpiry is about.
const (
	WorldRunEnded    = "run"    // when a run has ended
	WorldRunRemoved  = "tomb"   // when a run was removed, of which the head is kept; more may be left
	WorldRunKept     = "kept"   // when a run was removed, of which nothing but the head is left
	WorldStreamEarly = "stream" // when a stream was begun whose run was not there
)

// WorldExpiry is the key that says since when a run may have to be removed: wexp:{kind}:{time}:{run}.
func WorldExpiry(kind string, at time.Time, run string) []byte {
	return storage.AppendKey(append(appendTime([]byte("wexp:"+kind+":"), at), ':'), run)
}

// WorldExpiries is the range of the WorldExpiry keys of a kind, of a time and earlier ones.
func WorldExpiries(kind string, until time.Time) storage.Range {
	start := []byte("wexp:" + kind + ":")
	return storage.Range{Start: start, End: append(appendTime(append([]byte{}, start...), until), ';')}
}

// WorldChildren is the range of everything under the head of a run.
func WorldChildren(run string) storage.Range { return storage.Prefix(append(key("world:", run), ':')) }
