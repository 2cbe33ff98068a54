package keys_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/storage"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// families make a key of each family from an id, a name and a third component.
var families = map[string]func(id, name, sid string) []byte{
	"wf":     func(id, _, _ string) []byte { return keys.Workflow(id) },
	"in":     func(id, _, _ string) []byte { return keys.Input(id) },
	"out":    func(id, _, _ string) []byte { return keys.Output(id) },
	"log":    func(id, _, _ string) []byte { return keys.LogOf(id).Checkpoint(math.MaxUint64) },
	"ckpt":   func(id, _, _ string) []byte { return keys.LogUnder(id).Checkpoint(math.MaxUint64) },
	"pub":    func(id, name, _ string) []byte { return keys.Published(id, name) },
	"sig":    keys.Signal,
	"inbox":  func(id, _, _ string) []byte { return keys.Inbox(id, math.MaxUint64) },
	"sigres": keys.Accepted,
	"sigseq": func(id, _, _ string) []byte { return keys.SignalCounter(id) },
	"upd":    func(id, _, sid string) []byte { return keys.Update(id, sid) },
	"upr":    func(id, _, sid string) []byte { return keys.Answer(id, sid) },
	"eng":    func(_, name, sid string) []byte { return keys.Engine(name + "-" + sid) },
	"held":   func(id, name, sid string) []byte { return keys.Held(name+"-"+sid, id) },
	"todo":   func(id, _, sid string) []byte { return keys.Todo(0, noon, id, sid) },
	"op":     func(id, name, _ string) []byte { return keys.Line(name, noon, id) },
	"slot":   func(_, name, _ string) []byte { return keys.Slot(name, 7) },
	"rate":   func(_, name, _ string) []byte { return keys.Rate(name) },
	"wake":   func(id, name, sid string) []byte { return keys.Wake(name, id, sid) },
	"ix":     func(id, _, _ string) []byte { return keys.Index(id) },
	"ls":     func(id, name, sid string) []byte { return keys.Listed(name, sid, noon, id) },
	"ll":     func(id, name, sid string) []byte { return keys.Labelled(name, sid, "running", noon, id) },
	"lp":     func(id, name, _ string) []byte { return keys.ListedChild(name, id) },
	"la":     func(id, _, _ string) []byte { return keys.Attended(id) },
	"exp":    func(id, _, sid string) []byte { return keys.ExpiringTombstone(noon, id, sid) },
	"act":    func(id, name, sid string) []byte { return keys.Activity(id, name, "3.1", sid) },
	"beat":   func(id, _, sid string) []byte { return keys.Beat(id, sid) },
	"dep":    func(_, name, _ string) []byte { return keys.Deployment(name) },
	"sch":    func(id, _, _ string) []byte { return keys.Schedule(id) },
	"bulk":   func(id, _, _ string) []byte { return keys.Bulk(id) },
	"bref":   func(id, _, _ string) []byte { return keys.BulkRefusals(id, 7) },
	"due":    func(id, _, _ string) []byte { return keys.ScheduleDue(noon, id) },
	"meta":   func(_, name, _ string) []byte { return keys.Meta(name) },
	"hook":   func(id, _, _ string) []byte { return keys.HookAddress(keys.TokenHash(id)) },
	"hk":     func(id, _, sid string) []byte { return keys.Hook(id, sid) },
	"hres":   func(id, _, sid string) []byte { return keys.Resumed(keys.TokenHash(id), sid) },
	"stream": func(id, name, _ string) []byte { return keys.Stream(id, name) },
	"chunk":  func(id, name, _ string) []byte { return keys.Chunk(keys.ChunksOf(id, name), math.MaxUint64) },
	"wmsg":   func(_, name, sid string) []byte { return keys.QueueMessage(name, sid) },
	"wdue":   func(_, name, sid string) []byte { return keys.QueueDue(name, noon, sid) },
	"wheld":  func(_, name, sid string) []byte { return keys.QueueHeld(name, noon, sid) },
	"wkey":   func(id, name, _ string) []byte { return keys.QueueKey(name, id) },
	"wexp":   func(id, name, _ string) []byte { return keys.QueueKeyPast(noon, name, id) },
	"world":  func(id, _, _ string) []byte { return keys.World(id) },
	"ev":     func(id, _, _ string) []byte { return keys.WorldEvent(id, math.MaxUint64) },
	"st":     func(id, _, sid string) []byte { return keys.WorldEntity(id, "st", sid) },
	"at":     func(id, _, _ string) []byte { return keys.WorldAttributes(id) },
	"wtok":   func(id, _, _ string) []byte { return keys.WorldToken(keys.TokenHash(id)) },
	"whk":    func(_, _, sid string) []byte { return keys.WorldHookRun(sid) },
	"wcor":   func(id, _, sid string) []byte { return keys.WorldCorrelated(sid, id, 7) },
	"wix":    func(id, name, _ string) []byte { return keys.WorldListed("name", name, id) },
	"keyid":  func(_, name, sid string) []byte { return keys.ControlKeyID(name, sid) },
	"audit":  func(_, name, sid string) []byte { return keys.ControlAudit(name, sid) },
	"taken":  func(_, name, sid string) []byte { return keys.ControlRate(name, sid) },
}

// FMT-1, FMT-2, FMT-3, FMT-4, FMT-5, FMT-7, ACT-2, ACT-25, SIG-19: the keys of records.
func TestKeysAreWhereTheContractSays(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{string(keys.Workflow("order 1")), "wf:order%201"},
		{string(keys.Input("o")), "wf:o:in"},
		{string(keys.Output("o")), "wf:o:out"},
		{string(keys.LogOf("G").Checkpoint(7)), "log:G:00000000000000000007"},
		{string(keys.LogUnder("o:1").Checkpoint(7)), "wf:o%3A1:ckpt:00000000000000000007"},
		{string(keys.Published("o:1", "how far")), "wf:o%3A1:pub:how%20far"},
		{string(keys.Signal("o:1", "a/b", "x%")), "sig:o%3A1:a%2Fb:x%25"},
		{string(keys.Accepted("o", "a", "x")), "sigres:o:a:x"},
		{string(keys.Activity("o 1", "charge/card", "3.1", "order:42")), "act:o%201:charge%2Fcard:3.1:order%3A42"},
		{string(keys.Beat("o 1", "3.1")), "beat:o%201:3.1"},
		{string(keys.Update("o:1", "click 7")), "upd:o%3A1:click%207"},
		{string(keys.Answer("o:1", "click 7")), "upr:o%3A1:click%207"},
		{string(keys.ExpiringAnswer(noon, "o:1", "click 7")), "exp:1767355200000000:upd:o%3A1:click%207"},
		{string(keys.Inbox("o", 3)), "inbox:o:00000000000000000003"},
		{string(keys.SignalCounter("o")), "sigseq:o"},
		{string(keys.Held("host-1", "o")), "held:host-1:o"},
		{string(keys.Wake("host-1", "o", "n")), "wake:host-1:o:n"},
		{string(keys.Todo(0, noon, "o", "n")), "todo:000:1767355200000000:o:n"},
		{string(keys.Line("print/a4", noon, "o:1")), "op:print%2Fa4:1767355200000000:o%3A1"},
		{string(keys.Slot("print:a4", 7)), "slot:print%3Aa4:00007"},
		{string(keys.Rate("print%")), "rate:print%25"},
		{string(keys.Index("G")), "ix:G"},
		{string(keys.Listed("pay:out", "running", noon, "G")), "ls:pay%3Aout:running:1767355200000000:G"},
		{string(keys.Labelled("team", "a:b", "failed", noon, "G")), "ll:team:a%3Ab:failed:1767355200000000:G"},
		{string(keys.ListedChild("o:1", "G")), "lp:o%3A1:G"},
		{string(keys.Attended("G")), "la:G"},
		{string(keys.ExpiringTombstone(noon, "o", "G")), "exp:1767355200000000:tomb:o:G"},
		{string(keys.Dismissal("o:1", "G")), "exp:0000000000000000:kids:o%3A1:G"},
		{string(keys.Engine("host-1")), "eng:host-1"},
		{string(keys.Deployment("green_1")), "dep:green_1"},
		{string(keys.Schedule("re:port")), "sch:re%3Aport"},
		{string(keys.ScheduleDue(noon, "re:port")), "due:1767355200000000:sch:re%3Aport"},
		{string(keys.Bulk("stop:1")), "bulk:stop%3A1"},
		{string(keys.BulkRefusals("stop:1", 3)), "bref:stop%3A1:00000000000000000003"},
		{string(keys.ScheduleHint("o")), "due:0000000000000000:sch:o"},
		{string(keys.HookAddress(keys.TokenHash("invoice/7"))), "hook:r8Wbu73UYTfY7JLNEJOnwCHN6sUxYHQOhVZHvoDA5nM"},
		{string(keys.Hook("o:1", "hook_1")), "hk:o%3A1:hook_1"},
		{string(keys.Resumed(keys.TokenHash("invoice/7"), "evt:1")), "hres:r8Wbu73UYTfY7JLNEJOnwCHN6sUxYHQOhVZHvoDA5nM:evt%3A1"},
		{string(keys.ExpiringResumed(noon, keys.TokenHash("invoice/7"), "evt:1")), "exp:1767355200000000:hres:r8Wbu73UYTfY7JLNEJOnwCHN6sUxYHQOhVZHvoDA5nM:evt%3A1"},
		{string(keys.Stream("o:1", "the words")), "stream:o%3A1:the%20words"},
		{string(keys.Chunk(keys.ChunksOf("o:1", "the words"), 3)), "chunk:o%3A1:the%20words:00000000000000000003"},
		{string(keys.Meta("store")), "meta:store"},
		{string(keys.QueueMessage("blue:1", "msg_1")), "wmsg:blue%3A1:msg_1"},
		{string(keys.QueueDue("blue:1", noon, "msg_1")), "wdue:blue%3A1:1767355200000000:msg_1"},
		{string(keys.QueueHeld("blue:1", noon, "msg_1")), "wheld:blue%3A1:1767355200000000:msg_1"},
		{string(keys.QueueKey("blue:1", "step 1")), "wkey:blue%3A1:step%201"},
		{string(keys.QueueKeyPast(noon, "blue:1", "step 1")), "wexp:key:1767355200000000:blue%3A1:step%201"},
		{string(keys.World("wrun:1")), "world:wrun%3A1"},
		{string(keys.WorldEvent("wrun:1", 7)), "world:wrun%3A1:ev:00000000000000000007"},
		{string(keys.WorldEntity("wrun:1", "st", "a/b")), "world:wrun%3A1:st:a%2Fb"},
		{string(keys.WorldAttributes("wrun:1")), "world:wrun%3A1:at"},
		{string(keys.WorldToken(keys.TokenHash("invoice/7"))), "wtok:r8Wbu73UYTfY7JLNEJOnwCHN6sUxYHQOhVZHvoDA5nM"},
		{string(keys.WorldHookRun("hook:1")), "whk:hook%3A1"},
		{string(keys.WorldCorrelated("a:b", "wrun:1", 7)), "wcor:a%3Ab:wrun%3A1:00000000000000000007"},
		{string(keys.WorldListed("name", "a:b", "wrun:1")), "wix:name:a%3Ab:wrun%3A1"},
		{string(keys.ControlKey("00ff")), "ctl:key:00ff"},
		{string(keys.ControlKeyID("acme/prod", "shop.1")), "ctl:keyid:acme%2Fprod:shop.1"},
		{string(keys.ControlAudit("acme/prod", "01J")), "ctl:audit:acme%2Fprod:01J"},
		{string(keys.ControlRate("acme/prod", "shop")), "ctl:rate:acme%2Fprod:shop"},
		{string(keys.ControlHit(noon.Add(59 * time.Second))), "ctl:hit:0000000029455920"},
		{string(keys.ControlHits()), "ctl:hits"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// SIG-17, SIG-18, ACT-30: different tuples have different keys, even if a component contains
// separators and escapes.
func TestDistinctTuplesHaveDistinctKeys(t *testing.T) {
	part := rapid.SampledFrom([]string{"a", ":", "%", "/", "\x00", "a:b", "b", "%3A", "in", ":in", "ckpt", "a:ckpt:1", "é", "e\u0301", "A", " a", "a "})
	for _, c := range [][2][3]string{
		{{"a:b", "c", "d"}, {"a", "b:c", "d"}},
		{{"a", "b:c", "d"}, {"a", "b", "c:d"}},
		{{"a", "b", ":"}, {"a", "b:", ""}},
		{{"a:", "b", "c"}, {"a", ":b", "c"}},
		{{"a%3Ab", "c", "d"}, {"a:b", "c", "d"}},
		{{"a", "b", "c%25"}, {"a", "b", "c%"}},
	} {
		for _, family := range []string{"sig", "sigres", "wake"} {
			a, b := c[0], c[1]
			if k := families[family](a[0], a[1], a[2]); bytes.Equal(k, families[family](b[0], b[1], b[2])) {
				t.Errorf("%s: %q and %q have one key, %q", family, a, b, k)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a := [3]string{part.Draw(t, "id"), part.Draw(t, "name"), part.Draw(t, "sid")}
		b := [3]string{part.Draw(t, "id"), part.Draw(t, "name"), part.Draw(t, "sid")}
		switch rapid.SampledFrom([]string{"another", "divided elsewhere", "escaped"}).Draw(t, "b") {
		case "divided elsewhere":
			words := strings.Split(strings.Join(a[:], ":"), ":")
			i := rapid.IntRange(1, len(words)-2).Draw(t, "first border")
			j := rapid.IntRange(i+1, len(words)-1).Draw(t, "second border")
			b = [3]string{strings.Join(words[:i], ":"), strings.Join(words[i:j], ":"), strings.Join(words[j:], ":")}
		case "escaped":
			b = [3]string{a[0], a[1], strings.ReplaceAll(a[2], ":", "%3A")}
		}
		for _, family := range []string{"sig", "sigres", "wake"} {
			ka, kb := families[family](a[0], a[1], a[2]), families[family](b[0], b[1], b[2])
			if bytes.Equal(ka, kb) != (a == b) {
				t.Errorf("%s: %q has key %q and %q has %q", family, a, ka, b, kb)
			}
		}
		if ka, kb := keys.Workflow(a[0]), keys.Workflow(b[0]); bytes.Equal(ka, kb) != (a[0] == b[0]) {
			t.Errorf("wf: %q has key %q and %q has %q", a[0], ka, b[0], kb)
		}
	})
}

// ACT-1, ACT-2, ACT-25, ACT-26, ACT-27, ACT-28, ACT-29, ACT-30: a record of a reconciled activity is
// found under its own workflow, name, operation and key, and under no other.
func FuzzActivityKeysAreInjective(f *testing.F) {
	parts := []string{"a", "a:", ":a", "a:b", "b", "%", "%3A", "/", "\x00", " ", "%00", "1.1", "1", ".1", "", "é", "e\u0301"}
	for i, p := range parts {
		q := parts[(i+1)%len(parts)]
		f.Add(p, "a", "a", "a", q, "a", "a", "a")
		f.Add("a", p, "a", "a", "a", q, "a", "a")
		f.Add("a", "a", p, "a", "a", "a", q, "a")
		f.Add("a", "a", "a", p, "a", "a", "a", q)
		f.Add(p, q, "1", "k", q, p, "1", "k")
		f.Add("o", p+":"+q, "1", "k", "o", p, q+":1", "k")
		f.Add("o", "n", p+q, "", "o", "n", p, q)
	}
	f.Fuzz(func(t *testing.T, id, name, op, key, id2, name2, op2, key2 string) {
		a, b := keys.Activity(id, name, op, key), keys.Activity(id2, name2, op2, key2)
		same := id == id2 && name == name2 && op == op2 && key == key2
		if bytes.Equal(a, b) != same {
			t.Errorf("%q has key %q and %q has %q", []string{id, name, op, key}, a, []string{id2, name2, op2, key2}, b)
		}
		r := keys.ActivitiesOf(id)
		if in := bytes.Compare(b, r.Start) >= 0 && bytes.Compare(b, r.End) < 0; in != (id == id2) {
			t.Errorf("%q is among the records of %q: %v", b, id, in)
		}
	})
}

// FMT-8, FMT-11, FMT-17, FMT-18, FMT-19, FMT-20, FMT-24, ACT-25: a scan of one family returns no keys
// of another, whatever the ids are.
func TestFamiliesAreAdditive(t *testing.T) {
	for _, id := range []string{"a", "wf:a", "sig", "sigres", ":", "a:ckpt:1", "\x00", "wf", "op", "upd"} {
		for name, make := range families {
			k := make(id, id, id)
			for _, scan := range []string{"wf:", "sig:", "upd:", "op:"} {
				r := storage.Prefix([]byte(scan))
				in := bytes.Compare(k, r.Start) >= 0 && bytes.Compare(k, r.End) < 0
				mine := name+":" == scan || scan == "wf:" && (name == "in" || name == "out" || name == "ckpt" || name == "pub")
				if in != mine {
					t.Errorf("a scan of %s meets %q, a record of %s", scan, k, name)
				}
			}
		}
	}
}

// A workflow's ranges contain its own keys and none of another workflow.
func TestRangesHoldOneWorkflow(t *testing.T) {
	within := func(r storage.Range, k []byte) bool {
		return bytes.Compare(k, r.Start) >= 0 && (r.End == nil || bytes.Compare(k, r.End) < 0)
	}
	for _, other := range []string{"a", "a:", "a:b", "a%3Ab", "ab", "", "a\x00", "b"} {
		mine := other == "a"
		for _, log := range []func(string) keys.Log{keys.LogOf, keys.LogUnder} {
			k := log(other).Checkpoint(5)
			if got := within(log("a").From(0), k); got != mine || log("a").Has(k) != mine {
				t.Errorf("checkpoint 5 of %q is in the range of a: %v", other, got)
			}
			if within(log("a").From(6), k) {
				t.Error("checkpoint 5 is among those from 6 on")
			}
		}
		if got := within(keys.InboxFrom("a", 0), keys.Inbox(other, 5)); got != mine {
			t.Errorf("place 5 of %q is in the inbox of a: %v", other, got)
		}
		if got := within(keys.HeldBy("a"), keys.Held(other, "x")); got != mine {
			t.Errorf("what %q holds is in the range of what a holds: %v", other, got)
		}
		for _, k := range [][]byte{
			keys.LogUnder(other).Checkpoint(1), keys.Input(other), keys.Output(other), keys.SignalCounter(other),
			keys.Signal(other, "n", "s"), keys.Activity(other, "charge", "1", "k"), keys.Accepted(other, "n", "s"), keys.Inbox(other, 1),
		} {
			var in bool
			for _, r := range keys.ChildrenAmong("a", keys.AllFeatures) {
				in = in || within(r, k)
			}
			if in != mine {
				t.Errorf("%q is deleted with a: %v", k, in)
			}
		}
	}
	for _, other := range []string{"a", "a:", "a:b", "a%3Ab", "ab", "", "b"} {
		mine := other == "a"
		if got := within(keys.LineOf("a"), keys.Line(other, noon, "x")); got != mine {
			t.Errorf("the line of queue %q is in that of a: %v", other, got)
		}
		if got := within(keys.SlotsOf("a"), keys.Slot(other, 7)); got != mine {
			t.Errorf("a slot of queue %q is among those of a: %v", other, got)
		}
	}
	for _, r := range keys.ChildrenAmong("a", keys.AllFeatures) {
		if within(r, keys.Workflow("a")) {
			t.Errorf("the record of a is among its children, in %q", r.Start)
		}
	}
}

// Interleaving 18: limits are in bytes before escaping, so that every accepted key fits into
// the smallest index.
func TestLongestKeysFit(t *testing.T) {
	worst := func(n int) string { return strings.Repeat("\x00", n) } // each byte is escaped to three
	for name, make := range families {
		if k := make(worst(keys.MaxID), worst(keys.MaxName), worst(keys.MaxSignalID)); len(k) > storage.MaxKey {
			t.Errorf("the longest key of %s has %d bytes, at most %d", name, len(k), storage.MaxKey)
		}
	}
	act := keys.Activity(worst(keys.MaxID), worst(keys.MaxName),
		strings.Repeat("99.", keys.MaxBranchDepth-1)+"99", worst(keys.MaxIdempotencyKey))
	if len(act) > storage.MaxKey {
		t.Errorf("the longest key of act has %d bytes, at most %d", len(act), storage.MaxKey)
	}
}

// the byte order of numbers and times is their natural order.
func TestNumbersAndTimesSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		ka, kb := keys.LogOf("o").Checkpoint(a), keys.LogOf("o").Checkpoint(b)
		if (a < b) != (bytes.Compare(ka, kb) < 0) {
			t.Errorf("%d and %d have keys %q and %q", a, b, ka, kb)
		}
		if n, err := keys.Number(ka); err != nil || n != a {
			t.Errorf("Number(%q) = %d, %v, want %d", ka, n, err, a)
		}
	})
	for _, c := range []struct {
		at  time.Time
		due bool
	}{
		{time.Time{}, true},
		{time.Unix(-1, 0), true},
		{noon, true},
		{noon.Add(time.Microsecond), false},
		{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), false},
	} {
		now, until := keys.TodoNow(0, c.at, "o", "n"), keys.TodoUntil(0, time.Time{})
		if bytes.Compare(now, until.Start) < 0 || bytes.Compare(now, until.End) >= 0 {
			t.Errorf("an entry that is due now, written at %v, is not due at all times", c.at)
		}
		if at, isNow, err := keys.Due(now); !isNow || err != nil || c.at.Unix() > 0 && c.at.Year() < 2200 && !at.Equal(c.at) {
			t.Errorf("Due(%q) = %v, %v, %v, want now, written at %v", now, at, isNow, err, c.at)
		}
		k, r := keys.Todo(0, c.at, "o", "n"), keys.TodoUntil(0, noon)
		if _, isNow, err := keys.Due(k); isNow || err != nil {
			t.Errorf("Due(%q) is now: %v, %v", k, isNow, err)
		}
		if due := bytes.Compare(k, r.Start) >= 0 && bytes.Compare(k, r.End) < 0; due != c.due {
			t.Errorf("an entry for %v is due at %v: %v, want %v", c.at, noon, due, c.due)
		}
	}
}

// The components of a key can be read back.
func TestKeysTellTheirComponents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.String().Draw(t, "id")
		nonce := rapid.StringN(1, 20, -1).Draw(t, "nonce")
		for _, k := range [][]byte{
			keys.Held("host", id), keys.Wake("host", id, nonce), keys.Todo(0, noon, id, nonce), keys.Line(nonce, noon, id), keys.ExpiringTombstone(noon, id, nonce),
		} {
			if got, err := keys.ID(k); err != nil || got != id {
				t.Errorf("ID(%q) = %q, %v, want %q", k, got, err, id)
			}
		}
		if got, err := keys.Last(keys.Wake("host", id, nonce)); err != nil || got != nonce {
			t.Errorf("Last = %q, %v, want %q", got, err, nonce)
		}
	})
	for _, k := range []string{"", "held", "wf:a", "todo:000", "held:%", "held:a:%zz"} {
		if id, err := keys.ID([]byte(k)); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("ID(%q) = %q, %v, want ErrCorrupt", k, id, err)
		}
	}
	if n, err := keys.Number([]byte("wf:a:ckpt:x")); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("Number of no number = %d, %v, want ErrCorrupt", n, err)
	}
}

// The todo key of a parked run has the time at which it was written; others do not.
func TestParked(t *testing.T) {
	k := keys.TodoParked(0, noon.Add(time.Hour), noon, "o", "N")
	if at, err := keys.LineSince(keys.Line("print/a4", noon, "o:1")); err != nil || !at.Equal(noon) {
		t.Errorf("LineSince = %v, %v, want %v", at, err, noon)
	}
	if at, ok := keys.Parked(k); !ok || !at.Equal(noon) {
		t.Errorf("Parked(%q) = %v, %v, want %v", k, at, ok, noon)
	}
	if at, now, err := keys.Due(k); now || err != nil || !at.Equal(noon.Add(time.Hour)) {
		t.Errorf("Due(%q) = %v, %v, %v", k, at, now, err)
	}
	for _, k := range [][]byte{keys.Todo(0, noon, "o", "N"), keys.TodoNow(0, noon, "o", "N"), []byte("todo:000:1:o:a.b"), []byte("todo:%")} {
		if at, ok := keys.Parked(k); ok {
			t.Errorf("Parked(%q) = %v", k, at)
		}
	}
}

// The ranges of the control plane's records hold one namespace, one time.
func TestControlRanges(t *testing.T) {
	in := func(r storage.Range, k []byte) bool {
		return bytes.Compare(k, r.Start) >= 0 && (r.End == nil || bytes.Compare(k, r.End) < 0)
	}
	for _, c := range []struct {
		r    storage.Range
		k    []byte
		want bool
	}{
		{keys.ControlKeyIDs("acme/prod"), keys.ControlKeyID("acme/prod", "a"), true},
		{keys.ControlKeyIDs("acme/prod"), keys.ControlKeyID("acme/prod2", "a"), false},
		{keys.ControlKeyIDs("acme/prod"), keys.ControlKeyID("acme/pro", "a"), false},
		{keys.ControlKeyIDs(""), keys.ControlKeyID("acme/prod", "a"), true},
		{keys.ControlKeyIDs(""), keys.ControlKey("00ff"), false},
		{keys.ControlAudits("acme/prod"), keys.ControlAudit("acme/prod", "01J"), true},
		{keys.ControlAudits("acme/prod"), keys.ControlAudit("acme/test", "01J"), false},
		{keys.ControlAudits(""), keys.ControlAudit("acme/test", "01J"), true},
		{keys.ControlHitsUntil(noon), keys.ControlHit(noon), false},
		{keys.ControlHitsUntil(noon), keys.ControlHit(noon.Add(-time.Second)), true},
		{keys.ControlHitsUntil(noon.Add(time.Hour)), keys.ControlHits(), false},
		{keys.ControlHitsFrom(noon), keys.ControlHit(noon), true},
		{keys.ControlHitsFrom(noon), keys.ControlHit(noon.Add(-time.Second)), false},
		{keys.ControlHitsFrom(noon), keys.ControlHits(), false},
	} {
		if got := in(c.r, c.k); got != c.want {
			t.Errorf("%q in %q to %q: got %v, want %v", c.k, c.r.Start, c.r.End, got, c.want)
		}
	}
	ns, name, err := keys.ControlNames(keys.ControlAudit("acme/prod", "01J"))
	if ns != "acme/prod" || name != "01J" || err != nil {
		t.Errorf("got %q, %q, %v", ns, name, err)
	}
	if _, _, err := keys.ControlNames(keys.ControlKey("00ff")); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("of another family: got %v", err)
	}
	if at, err := keys.ControlHitMinute(keys.ControlHit(noon.Add(time.Second))); !at.Equal(noon) || err != nil {
		t.Errorf("got %v, %v, want %v", at, err, noon)
	}
	if _, err := keys.ControlHitMinute(keys.ControlHits()); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("of another family: got %v", err)
	}
}
