package main

import (
	"cmp"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// TestMain makes the test program its own child.
func TestMain(m *testing.M) {
	stores["memory"] = func(string) (storage.Storage, error) { return new(memory.Store), nil }
	if os.Getenv(childEnv) != "" {
		os.Exit(child(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

func testOptions(t *testing.T, store string) options {
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("WEFT_KILLS"), "15"))
	if err != nil {
		t.Fatal("WEFT_KILLS:", err)
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("WEFT_SEED"), strconv.FormatUint(rand.Uint64(), 10)), 10, 64)
	if err != nil {
		t.Fatal("WEFT_SEED:", err)
	}
	return options{kills: kills, store: store, seed: seed, clients: 16, span: 200 * time.Millisecond, dir: t.TempDir()}
}

// TestCrash kills WEFT_KILLS times per store; WEFT_SEED repeats the moments.
func TestCrash(t *testing.T) {
	torture.Slow(t)
	for _, store := range []string{"bolt", "sqlite"} {
		t.Run(store, func(t *testing.T) {
			o := testOptions(t, store)
			if err := run(context.Background(), o, t.Output()); err != nil {
				t.Fatalf("seed %d: %v", o.seed, err)
			}
		})
	}
}

// TestAStoreThatForgetsIsFoundOut runs it with a store that dies with its process.
func TestAStoreThatForgetsIsFoundOut(t *testing.T) {
	o := testOptions(t, "memory")
	o.kills = 25
	if err := run(context.Background(), o, t.Output()); err == nil || !strings.Contains(err.Error(), "violations") {
		t.Fatalf("a store in memory survived %d kills: %v", o.kills, err)
	}
}

// TestLedgerFindsWhatCannotBeRight gives a ledger one false statement at a time. "kill"
// ends the process, "foreign" says that the process is of another build, and "ended" that it has ended.
func TestLedgerFindsWhatCannotBeRight(t *testing.T) {
	for _, c := range []struct{ name, story, want string }{
		{"the truth", "effect order-1 charge 1 5; learnt order-1 charge charge.1.77; kill; learnt order-1 charge charge.1.77", ""},
		{"repeated in flight", "effect order-1 charge 1 5; kill; effect order-1 charge 2 6", ""},
		{"refused and tried again", "refused order-1 charge 1 5; effect order-1 charge 2 6; learnt order-1 charge charge.2.77", ""},
		{"repeated after it was learnt", "effect order-1 charge 1 5; learnt order-1 charge charge.1.77; kill; effect order-1 charge 2 6", "after its outcome had been learnt"},
		{"repeated after a lost lease", "effect order-1 charge 1 5; deposed; effect order-1 charge 2 6", ""},
		{"repeated after an attempt that began before the lease was lost", "deposed; effect order-1 charge 1 5 late; effect order-1 charge 2 6", ""},
		{"begun when the lease was lost", "deposed; stray order-1 charge; effect order-1 charge 1 5 late", "had lost its lease"},
		{"repeated after an attempt that began after the lease was lost", "deposed; effect order-1 charge 1 5; effect order-1 charge 2 6", "in one life"},
		{"repeated though it was learnt before the lease was lost", "effect order-1 charge 1 5; learnt order-1 charge charge.1.77; deposed; effect order-1 charge 2 6", "after its outcome had been learnt"},
		{"repeated without a kill", "effect order-1 charge 1 5; effect order-1 charge 2 6", "in one life"},
		{"repeated in a life of another build", "foreign; effect order-1 charge 1 5; effect order-1 charge 2 6; ended", "in one life"},
		{"repeated in a life of another build that lost a lease", "foreign; effect order-1 charge 1 5; effect order-1 charge 2 6; ended without its lease", ""},
		{"repeated in the life after it", "foreign; ended without its lease; kill; effect order-1 charge 1 5; effect order-1 charge 2 6", "in one life"},
		{"repeated after a kill too many", "effect order-1 charge 1 5; kill; kill; effect order-1 charge 1 6", "attempt 1 after attempt 1"},
		{"token of a former owner", "effect order-1 charge 1 5; kill; effect order-1 charge 2 5", "fencing token 5 after 5"},
		{"another outcome", "effect order-1 charge 1 5; learnt order-1 charge charge.1.77; kill; learnt order-1 charge charge.1.78", "and later charge.1.78"},
		{"an outcome of nothing", "learnt order-1 charge charge.1.77", "not begun last"},
		{"an outcome of another attempt", "effect order-1 charge 1 5; kill; effect order-1 charge 2 6; learnt order-1 charge charge.1.77", "not begun last"},
		{"a start twice", "started order-1 100; kill; started order-1 200", "start was acknowledged as 100, and later as 200"},
		{"an update answered twice", "updated order-1 a; kill; updated order-1 b", "update was acknowledged as a, and later as b"},
		{"an update done twice", "effect order-1 note 1 5; learnt order-1 note note.1.7; kill; effect order-1 note 2 6", "after its outcome had been learnt"},
		{"a signal twice", "sent order-1 100; kill; sent order-1 200", "approval was acknowledged"},
		{"two results", "result order-1 a; kill; result order-1 b", "result was acknowledged"},
		{"trouble", "trouble order-1 held", "the child said"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger()
			l.begin()
			for _, line := range strings.Split(c.story, "; ") {
				switch line {
				case "kill":
					l.killed()
					l.begin()
				case "foreign":
					l.foreign = true
				case "ended":
					l.ended(nil)
				case "ended without its lease":
					l.ended([]byte(`level=ERROR msg="weft: lease is lost; all runs are released"`))
				default:
					l.read(line + "\n")
				}
			}
			got := strings.Join(l.violations, "\n")
			if c.want == "" && got != "" || c.want != "" && !strings.Contains(got, c.want) {
				t.Errorf("violations %q, want %q", got, c.want)
			}
		})
	}
}

// On a store so slow that a child works for a while before anything is in flight, enough kills find
// an effect in flight nevertheless, and children do not live much longer than that takes.
func TestSpanAdaptsToTheStore(t *testing.T) {
	const least, kills = 500 * time.Millisecond, 200
	for _, slow := range []time.Duration{0, least / 2, least, 5 * least, 10 * least} {
		random := rand.New(rand.NewPCG(1, uint64(slow)))
		span, hits, longest := least, 0, least
		for range kills {
			life := time.Duration(random.Int64N(int64(span) + 1))
			hit := life > slow && random.IntN(2) == 0 // an effect is in flight half of the time
			if hit {
				hits++
			}
			span = nextSpan(span, least, hit)
			longest = max(longest, span)
		}
		t.Logf("after %v: %d hits, spans up to %v", slow, hits, longest)
		if hits*6 < kills {
			t.Errorf("of %d kills, %d hit if nothing is in flight for %v: want a sixth at least, so that an eighth of all do", kills, hits, slow)
		}
		if limit := 8 * max(least, slow); longest > limit {
			t.Errorf("children work for up to %v if nothing is in flight for %v: want at most %v", longest, slow, limit)
		}
	}
	if got := nextSpan(30*least, least, false); got != 30*least {
		t.Errorf("the span grows to %v, want a limit of %v", got, 30*least)
	}
	if got := nextSpan(least, least, true); got != least {
		t.Errorf("the span shrinks to %v, want no less than %v", got, least)
	}
}

// TestLostWorkIsFound audits an empty store after acknowledgements.
func TestLostWorkIsFound(t *testing.T) {
	l := newLedger()
	l.begin()
	l.read("started order-1 100\n")
	dir := t.TempDir()
	if err := l.audit(context.Background(), stores["bolt"], dir); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(l.violations, "\n"); !strings.Contains(got, "it is lost") {
		t.Errorf("violations %q in %s, want that a start is lost", got, filepath.Base(dir))
	}
}
