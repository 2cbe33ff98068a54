package main

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
)

// TestMain makes the test program its own child.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child(os.Stdin, os.Stdout))
	}
	os.Exit(pgtest.Main(m))
}

func testOptions(t *testing.T, store string, least int) options {
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("WEFT_KILLS"), strconv.Itoa(least)))
	if err != nil {
		t.Fatal("WEFT_KILLS:", err)
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("WEFT_SEED"), strconv.FormatUint(rand.Uint64(), 10)), 10, 64)
	if err != nil {
		t.Fatal("WEFT_SEED:", err)
	}
	o := options{engines: 4, kills: kills, pauses: kills, ttl: 300 * time.Millisecond, store: store, clients: 6, patience: stall, seed: seed, where: t.TempDir()}
	if store == "postgres" {
		o.where = pgtest.URL(t)
	}
	return o
}

// torment runs the test, each time on a new store.
func torment(t *testing.T, o options) {
	t.Helper()
	err := withLongerLeases(o, func(o options) error {
		o.where = testOptions(t, o.store, 0).where
		return run(t.Context(), o, t.Output())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// OWN-2, OWN-3, OWN-7, OWN-9, OWN-21, OWN-25, OW1, OW2, OW3, OW6, OW7, AC5, T4: several
// processes on one store, which are stopped and killed, WEFT_KILLS times each.
// WEFT_SEED repeats the choice of processes.
func TestCluster(t *testing.T) {
	torture.Slow(t)
	for store, least := range map[string]int{"postgres": 8, "sqlite": 4} {
		t.Run(store, func(t *testing.T) {
			torment(t, testOptions(t, store, least))
		})
	}
}

// The same with stops inside commits only, each of them longer than the lease. No
// acknowledged checkpoint is lost or belongs to another owner, and a commit that
// finishes after a takeover is refused. 100 rounds under WEFT_TORTURE.
func TestStoppedInsideACommit(t *testing.T) {
	for _, store := range []string{"postgres", "sqlite"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			o := testOptions(t, store, 0)
			o.inside, o.kills, o.pauses = true, 0, 6
			if os.Getenv("WEFT_TORTURE") != "" {
				o.pauses = 200
			}
			torment(t, o)
		})
	}
}

// The test can fail: if stores accept commits of a former owner, it detects that.
func TestStaleCommitsAreFoundOut(t *testing.T) {
	o := testOptions(t, "postgres", 0)
	o.kills, o.pauses, o.careless, o.patience = 0, 8, true, time.Second
	err := withLongerLeases(o, func(o options) error {
		t.Logf("leases of %v", o.ttl)
		o.where = testOptions(t, o.store, 0).where
		k, err := newKiller(t.Context(), o, stores[o.store], t.Output())
		if err != nil {
			return err
		}
		defer k.close()
		if err := errors.Join(k.torture(t.Context()), k.audit(t.Context())); err != nil {
			return err
		}
		if !slices.ContainsFunc(k.ledger.violations, func(v string) bool { return strings.Contains(v, "was acknowledged to") }) {
			return fmt.Errorf("%w: stores without conditions have survived %d pauses: %q", errTooFew, o.pauses, k.ledger.violations)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLedgerFindsWhatCannotBeRight gives a ledger one false statement at a time, about
// an order with two owners: a1, which was stopped, and from checkpoint 20 on b1.
func TestLedgerFindsWhatCannotBeRight(t *testing.T) {
	at := time.Now()
	for _, c := range []struct{ name, story, want string }{
		{"the truth", "a1 commit o 10 a1-X; a1 commit o 19 a1-X; b1 commit o 20 b1-X; b1 commit o 21 b1-X; a1 refused o 20 a1-X", ""},
		{"a former owner commits", "a1 commit o 21 a1-X", "checkpoint 21 was acknowledged to a1"},
		{"a commit too early", "b1 commit o 19 b1-X", "checkpoint 19 was acknowledged to b1"},
		{"a commit under an earlier incarnation", "b1 commit o 21 b1-W", "checkpoint 21 was acknowledged to b1"},
		{"a commit that is lost", "b1 commit o 30 b1-X", "is lost"},
		{"an order that is lost", "a1 started p", "it is lost"},
		{"repeated over a pause", "a1 effect o 1 pack 10; b1 effect o 1 pack 20", ""},
		{"repeated under one claim", "a1 effect o 1 pack 10; a1 effect o 1 pack 11", "under one claim"},
		{"an effect of nobody", "c1 effect o 1 pack 10", "by c1, with the token 10"},
		{"an effect with the token of another", "a1 effect o 1 pack 20", "by a1, with the token 20"},
		{"a token that does not rise", "book o/2 20; book o/2 10", "token 10 was let in after 20"},
		{"a token twice", "book o/2 20; book o/2 20", "token 20 was let in after 20"},
		{"a successor of the living", "spare", "neither killed nor stopped"},
		{"two outcomes", "outcome", "operation 1 has 2 outcomes"},
		{"nonsense", "a1 hello", "a1 said"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger()
			for _, p := range []string{"a1", "b1", "c1"} {
				l.began(p)
			}
			h := history{
				numbers:  map[uint64]bool{10: true, 11: true, 19: true, 20: true, 21: true},
				claims:   []claim{{10, at.Add(-time.Second), "a1-X", false}, {20, at, "b1-X", true}},
				outcomes: map[string]int{"1": 1},
			}
			spared := false
			var bookings []booking
			for _, line := range strings.Split(c.story, "; ") {
				who, what, _ := strings.Cut(line, " ")
				switch who {
				case "spare":
					spared = true
				case "outcome":
					h.outcomes["1"]++
				case "book":
					resource, token, _ := strings.Cut(what, " ")
					bookings = append(bookings, booking{resource, number(token)})
				default:
					l.read(who, what)
				}
			}
			if !spared {
				l.stopped("a1", at.Add(-time.Second/2), at.Add(time.Second/2))
			}
			l.kept("o", h)
			l.judge(bookings)
			got := strings.Join(l.violations, "\n")
			if c.want == "" && got != "" || c.want != "" && !strings.Contains(got, c.want) {
				t.Errorf("violations %q, want %q", got, c.want)
			}
			if c.name == "the truth" && (l.fenced != 1 || l.deaths[byPause] != 1) {
				t.Errorf("%d fenced, %v, want one refused checkpoint of a former owner, and one death in a pause", l.fenced, l.deaths)
			}
		})
	}
}
