package main

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// TestMain makes the test program its own child.
func TestMain(m *testing.M) {
	stores["memory"] = place{make: folder, open: func(context.Context, string) (storage.Storage, host, error) { return new(memory.Store), nil, nil }}
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	os.Exit(m.Run())
}

func testOptions(t *testing.T, store string) options {
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("WEFT_SEED"), strconv.FormatUint(rand.Uint64(), 10)), 10, 64)
	if err != nil {
		t.Fatal("WEFT_SEED:", err)
	}
	return options{store: store, workers: 4, clients: 16, lease: time.Second, timeout: 150 * time.Millisecond, settle: 50 * time.Millisecond, lose: 0.06, seed: seed}
}

// FEN-11, FEN-12, FEN-15, FEN-27, FEN-29, FEN-61: whenever a worker dies, each refund happens once, and all
// callers are told the same of it. WEFT_KILLS kills per store; WEFT_SEED repeats most of it.
func TestKills(t *testing.T) {
	torture.Slow(t)
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("WEFT_KILLS"), "4"))
	if err != nil {
		t.Fatal("WEFT_KILLS:", err)
	}
	for _, store := range []string{"bolt", "sqlite", "shared", "postgres"} {
		t.Run(store, func(t *testing.T) {
			o := testOptions(t, store)
			o.kills = kills
			if err := run(t.Context(), o, t.Output()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// FEN-27: a worker that is stopped for longer than its lease seals nothing that was taken over.
func TestStops(t *testing.T) {
	torture.Slow(t)
	for _, store := range []string{"shared", "postgres"} {
		t.Run(store, func(t *testing.T) {
			o := testOptions(t, store)
			o.pauses = 4
			if err := run(t.Context(), o, t.Output()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A store that dies with its process is found out.
func TestAStoreThatForgetsIsFoundOut(t *testing.T) {
	torture.Slow(t)
	o := testOptions(t, "memory")
	o.kills = 25
	if err := run(t.Context(), o, t.Output()); err == nil || !strings.Contains(err.Error(), "violations") {
		t.Fatalf("a store in memory survived %d kills: %v", o.kills, err)
	}
}

// TestWrong changes one thing at a time in the books of a refund that is as it should be.
func TestWrong(t *testing.T) {
	at := time.UnixMicro(1_000_000)
	sealed := func() (*book, *idempotency.Info, *int) {
		one := 1
		return &book{kind: verified, told: callers, news: 1, seals: map[uint64]int{7: 1}, claimed: 7,
				first: &receipt{"eff_1", "r1", 2, at.UnixMicro(), at.UnixMicro()}},
			&idempotency.Info{State: idempotency.StateSealed, EffectID: "eff_1", Attempt: 2, Epoch: 7, FirstSeen: at, SealedAt: at}, &one
	}
	for _, c := range []struct {
		name   string
		change func(b *book, i *idempotency.Info, effects *int)
		want   string
	}{
		{"nothing", func(*book, *idempotency.Info, *int) {}, ""},
		{"no seal was seen", func(b *book, _ *idempotency.Info, _ *int) { clear(b.seals) }, ""},
		{"happened twice", func(_ *book, _ *idempotency.Info, n *int) { *n = 2 }, "duplicate"},
		{"never happened", func(_ *book, _ *idempotency.Info, n *int) { *n = 0 }, "lost"},
		{"not sealed", func(_ *book, i *idempotency.Info, _ *int) { i.State = idempotency.StateIndeterminate }, "stuck"},
		{"no record", func(_ *book, i *idempotency.Info, _ *int) { *i = idempotency.Info{} }, "stuck"},
		{"damaged", func(_ *book, i *idempotency.Info, _ *int) { i.Err = storage.ErrCorrupt }, "the record"},
		{"a caller waits", func(b *book, _ *idempotency.Info, _ *int) { b.told-- }, "stuck"},
		{"another id", func(_ *book, i *idempotency.Info, _ *int) { i.EffectID = "eff_2" }, "callers were told"},
		{"sealed later", func(_ *book, i *idempotency.Info, _ *int) { i.SealedAt = at.Add(time.Second) }, "callers were told"},
		{"two are new", func(b *book, _ *idempotency.Info, _ *int) { b.news = 2 }, "second seal"},
		{"sealed twice", func(b *book, _ *idempotency.Info, _ *int) { b.seals[7] = 2 }, "second seal"},
		{"sealed by a former owner", func(b *book, _ *idempotency.Info, _ *int) { b.seals[6] = 1 }, "second seal"},
		{"taken over before", func(b *book, _ *idempotency.Info, _ *int) { b.claimed = 8 }, "taken claim"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, i, effects := sealed()
			c.change(b, i, effects)
			got := strings.Join(b.wrong(*i, *effects), "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestDesk has callers and the provider say one thing at a time that cannot be.
func TestDesk(t *testing.T) {
	told := func(r receipt) outcome { return outcome{Receipt: r, Decision: idempotency.DecidedDuplicate} }
	right := receipt{"eff_1", "r1", 1, 1, 2}
	for _, c := range []struct {
		name string
		act  func(d *desk, b *book)
		want string
	}{
		{"the truth", func(d *desk, b *book) {
			d.apply(call{Hash: b.hash, Token: 5, Deadline: time.Now().Add(time.Hour)})
			d.answered(b, told(right))
			d.answered(b, told(right))
		}, ""},
		{"made twice", func(d *desk, b *book) {
			for range 2 {
				d.apply(call{Hash: b.hash, Token: 5, Deadline: time.Now().Add(time.Hour)})
			}
		}, "refunded 2 times"},
		{"made too late", func(d *desk, b *book) {
			for range 2 {
				d.apply(call{Hash: b.hash, Token: 5, Deadline: time.Now().Add(-d.settle)})
			}
		}, ""},
		{"two receipts", func(d *desk, b *book) {
			d.apply(call{Hash: b.hash, Token: 5, Deadline: time.Now().Add(time.Hour)})
			d.answered(b, told(right))
			d.answered(b, told(receipt{"eff_1", "r1", 1, 1, 3}))
		}, "another one"},
		{"a result of nothing", func(d *desk, b *book) { d.answered(b, told(right)) }, "the provider has made []"},
		{"a token again", func(d *desk, b *book) {
			d.arrived("w", call{Hash: b.hash, Attempt: 1, Token: 5})
			d.arrived("w", call{Hash: b.hash, Attempt: 2, Token: 5})
		}, "attempt 2 has token 5"},
		{"another request is answered", func(d *desk, b *book) {
			d.note("w", outcome{Task: task{Kind: b.kind, Refund: b.refund, Other: true}})
		}, "another request was answered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(testOptions(t, "bolt"), []Kind{verified})
			d.begin()
			b := d.books[key(verified, 0).Hash()]
			c.act(d, b)
			got := strings.Join(b.violations, "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Too little is no success.
func TestLacks(t *testing.T) {
	all := func() *desk {
		o := testOptions(t, "postgres")
		o.kills, o.pauses = 60, 8
		d := newDesk(o, []Kind{verified, fenced})
		d.hits = map[Kind]int{verified: 10, fenced: 10}
		d.counts = map[string]int{"kills": 60, "stops": 8, "questions": 1, "resolved": 1, "known to be the same": 1, "conflicts": 1, idempotency.ErrFenceLost.Error(): 2}
		return d
	}
	if err := all().verdict(all().options); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"kills", "stops", "questions", "resolved", "known to be the same", "conflicts", idempotency.ErrFenceLost.Error()} {
		d := all()
		d.counts[what] = 0
		if d.verdict(d.options) == nil {
			t.Errorf("%s: 0 is enough", what)
		}
	}
	for k := range maps.Keys(all().hits) {
		d := all()
		d.hits[k] = 0
		if d.verdict(d.options) == nil {
			t.Errorf("no kill that found %s is enough", k)
		}
	}
}
