package consumer

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// FEN-39: the key is the topic, and partition, key and dedupe id, escaped as in the keys of stores.
func TestKey(t *testing.T) {
	for _, c := range []struct {
		m    Message
		want string
	}{
		{Message{Topic: "orders", Key: "o-1", DedupeID: "m-1"}, ":o-1:m-1"},
		{Message{Topic: "orders", Partition: "3", DedupeID: "42"}, "3::42"},
		{Message{Topic: "orders", Key: "o:1"}, ":o%3A1:"},
		{Message{Topic: "orders", Key: "\xff\x00"}, ":%FF%00:"},
		{Message{Topic: "orders", Key: strings.Repeat("k", 253)}, ":" + strings.Repeat("k", 253) + ":"},
		{Message{Topic: "orders", Key: strings.Repeat("k", 254)}, "1e1fabce1306a9944b794b48b4b7c2443b9b569d088ad6c80f465b0ec9674648"},
	} {
		c.m.Tenant = "shop"
		k, err := c.m.key()
		if want := (idempotency.Key{Tenant: "shop", SourceType: "orders", SourceID: c.want}); err != nil || k != want {
			t.Errorf("%+v: %+v, %v; want %+v", c.m, k, err, want)
		}
	}
}

// FEN-39: a message that has neither a key nor a dedupe id has no identity.
func TestMessageWithoutIdentity(t *testing.T) {
	for _, m := range []Message{{Topic: "orders"}, {Topic: "orders", Partition: "3", Tenant: "shop"}} {
		if _, err := m.key(); !errors.Is(err, idempotency.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", m, err)
		}
	}
}

// parts are strings that are easily confused with each other.
func parts() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune{':', '%', 'a', '3', 'A', 0, 'é'}), 0, 8, -1),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 300), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.IntRange(240, 260), func(n int) string { return strings.Repeat("k", n) }),
	)
}

func messages() *rapid.Generator[Message] {
	return rapid.Custom(func(t *rapid.T) Message {
		return Message{
			Tenant:    parts().Draw(t, "tenant"),
			Topic:     parts().Draw(t, "topic"),
			Partition: parts().Draw(t, "partition"),
			Key:       parts().Draw(t, "key"),
			DedupeID:  parts().Draw(t, "dedupe id"),
		}
	})
}

// FEN-39: two messages have the same key if all their fields are equal, and only then. Whatever the bytes,
// the SourceID has at most 255, all of them ASCII.
func TestKeysOfDistinctMessagesAreDistinct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := messages().Draw(t, "a")
		if a.Key == "" {
			a.Key = "k"
		}
		// b is a with its bytes elsewhere: moved over a border between fields, or drawn anew.
		b := a
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			fields := []*string{&b.Tenant, &b.Topic, &b.Partition, &b.Key, &b.DedupeID}
			n := rapid.IntRange(0, len(fields)-1).Draw(t, "field")
			switch to := fields[(n+1)%len(fields)]; rapid.IntRange(0, 3).Draw(t, "change") {
			case 0:
				*fields[n] = parts().Draw(t, "part")
			case 1:
				*to, *fields[n] = *fields[n]+*to, ""
			case 2:
				*to, *fields[n] = *fields[n], *to
			case 3:
				*fields[n] = string(storage.AppendKey(nil, *fields[n], *to))
				*to = ""
			}
		}
		if b.Key == "" && b.DedupeID == "" {
			return
		}
		ka, errA := a.key()
		kb, errB := b.key()
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if (a == b) != (ka == kb) || (a == b) != (ka.Hash() == kb.Hash()) {
			t.Fatalf("%+v and %+v\nhave the keys\n%+v and %+v", a, b, ka, kb)
		}
		for _, k := range []idempotency.Key{ka, kb} {
			if len(k.SourceID) > 255 || !utf8.ValidString(k.SourceID) || strings.ContainsRune(k.SourceID, 0) {
				t.Fatalf("the source id is %q", k.SourceID)
			}
		}
	})
}
