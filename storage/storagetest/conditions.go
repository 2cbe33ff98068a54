package storagetest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weft-go/weft/storage"
)

func equalHolds(t *trial) {
	t.put("a=1", "empty=", "\x00=\x00\xff")
	t.commit(then(when(equal("a", "1")), put("a", "2")))
	t.commit(then(when(equal("empty", "")), put("b", "1")))
	t.commit(then(when(storage.Equal([]byte("empty"), nil)), put("c", "1")))
	t.commit(then(when(equal("\x00", "\x00\xff")), del("\x00")))
	t.holds("a=2", "b=1", "c=1", "empty=")
}

func equalFails(t *trial) {
	long := strings.Repeat("v", large)
	t.put("a=1", "empty=", "long="+long, "text=Value", "\xff=\xff")
	for _, c := range []storage.Condition{
		equal("text", "value"), equal("text", "Value "), equal("\xff", "\xfe"), equal("\xff", "\ufffd"), // for who compares text
		equal("a", "2"), equal("a", "1\x00"), equal("a", ""), equal("a", "11"), equal("empty", "\x00"),
		equal("missing", ""), storage.Equal([]byte("missing"), nil), equal("missing", "1"),
		equal("long", long[1:]+"w"), equal("long", long[1:]), equal("long", long+"v"), // for who compares prefixes
	} {
		t.conflict(then(when(c), put("b", "1")))
	}
	t.commit(then(when(equal("long", long)), del("long")))
	t.holds("a=1", "empty=", "text=Value", "\xff=\xff")
}

func absentHolds(t *trial) {
	t.commit(then(when(absent("a")), put("a", "1")))
	t.do(del("a"))
	t.commit(then(when(absent("a")), put("a", "2")))
	t.commit(then(when(absent("a\x00")), put("a\x00", "3")))
	t.holds("a=2", "a\x00=3")
}

func absentFails(t *trial) {
	t.put("a=1", "empty=")
	t.conflict(then(when(absent("a")), put("a", "2")))
	t.conflict(then(when(absent("a")), put("a", "1")))
	t.conflict(then(when(absent("empty")), put("empty", "2")))
	t.holds("a=1", "empty=")
}

func absentStaysAbsent(t *trial) {
	t.put("a=1", "empty=")
	gone := then(when(absent("gone")), del("gone"))
	t.commit(gone)
	t.commit(then(when(absent("gone")), del("gone"), put("b", "1")))
	t.commit(then(when(equal("a", "1"), absent("c"), absent("gone")), put("c", "1"), del("gone"), put("a", "2")))
	t.commit(then(when(absent("gone"), absent("d")), del("gone"), del("d"), storage.DeleteRange(between("x", "y"))))
	gone.Urgent = true
	t.commit(gone)
	t.holds("a=2", "b=1", "c=1", "empty=")
	t.conflict(then(when(absent("a")), del("a")))
	t.conflict(then(when(absent("empty")), del("empty"), put("e", "1")))
	t.conflict(then(when(absent("e"), absent("a")), put("e", "1"), del("a")))
	t.holds("a=2", "b=1", "c=1", "empty=")
}

func presentHolds(t *trial) {
	t.put("a=1", "empty=")
	t.commit(then(when(present("a")), put("b", "1")))
	t.commit(then(when(present("empty")), put("c", "1")))
	t.commit(then(when(present("a")), del("a")))
	t.holds("b=1", "c=1", "empty=")
}

func presentFails(t *trial) {
	t.put("a=1")
	t.conflict(then(when(present("b")), put("b", "1")))
	t.do(del("a"))
	t.conflict(then(when(present("a")), put("a", "1")))
	t.conflict(then(when(present("a")), del("a")))
	t.holds()
}

func conflictWritesNothing(t *trial) {
	t.put("a=1", "b=2", "c=3")
	ops := []storage.Op{
		put("new", "1"), put("a", "changed"), del("b"),
		storage.DeleteRange(between("c", "d")), put("missing", "1"),
	}
	for _, failing := range []storage.Condition{
		equal("a", "2"), equal("missing", "1"), absent("a"), present("missing"),
	} {
		t.conflict(then(when(failing), ops...))
		t.holds("a=1", "b=2", "c=3")
	}
}

func everyConditionIsJudged(t *trial) {
	t.put("a=1", "b=2", "c=3")
	holding := []storage.Condition{equal("a", "1"), present("b"), absent("new")}
	failing := []storage.Condition{equal("a", "2"), present("missing"), absent("c")}
	for i := range holding {
		mixed := append([]storage.Condition{}, holding...)
		mixed[i] = failing[i]
		t.conflict(then(when(mixed...), put("new", "1"), put("c", "4"), put("d", "5")))
		t.holds("a=1", "b=2", "c=3")
	}
	t.commit(then(when(holding...), put("new", "1")))
	t.holds("a=1", "b=2", "c=3", "new=1")
}

func conditionsComeFirst(t *trial) {
	t.put("a=1", "b=2")
	t.conflict(then(when(equal("a", "after")), put("a", "after")))
	t.conflict(then(when(present("new")), put("new", "1")))
	t.holds("a=1", "b=2")
	t.commit(then(when(equal("a", "1"), present("b")), del("a"), storage.DeleteRange(storage.Range{})))
	t.holds()
	t.put("a=1")
	t.conflict(then(when(absent("a")), storage.DeleteRange(storage.Range{}), put("a", "2")))
	t.commit(then(when(equal("a", "1")), storage.DeleteRange(storage.Range{}), put("a", "2")))
	t.holds("a=2")
}

func onlyConditions(t *trial) {
	t.put("a=1")
	t.commit(when(equal("a", "1")))
	t.commit(when(present("a")))
	t.conflict(when(equal("a", "2")))
	t.conflict(when(present("b")))
	t.holds("a=1")
}

func noConditionsNoConflict(t *trial) {
	t.put("a=1")
	t.together(8, func(i int) error {
		for range 20 {
			b := batch(put("a", "2"), del("b"), put("c", string(rune('0'+i))))
			if err := t.store.Commit(t.Context(), b); err != nil {
				return fmt.Errorf("Commit(%s) among others: got %v, want nil", words(b), err)
			}
		}
		return nil
	})
	t.got("a", "2")
}

// conditionsAreRefused replaces every rule that requires conditions if the store
// does not claim them. // CAP-5
func conditionsAreRefused(t *trial) {
	t.put("a=1", "b=2")
	for _, c := range []storage.Condition{
		equal("a", "1"), equal("a", "2"), present("b"), present("missing"), absent("a"), absent("new"),
	} {
		b := then(when(c), put("new", "1"), put("a", "2"), del("b"))
		err := t.store.Commit(t.Context(), b)
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Commit(%s): got %v, want errors.ErrUnsupported", words(b), err)
		}
		t.holds("a=1", "b=2")
	}
	if err := t.store.Commit(t.Context(), when(present("a"))); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Commit of only a condition: got %v, want errors.ErrUnsupported", err)
	}
	t.do(put("a", "3"))
	t.holds("a=3", "b=2")
}
