package keys

import (
	"fmt"
	"time"

	"github.com/weft-go/weft/storage"
)

// The records of the world, on which the TypeScript runtime runs. Its queues come first.

// MaxQueueKey is the maximum length of the key that deduplicates messages.
const MaxQueueKey = 512

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
