package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// A mirror applies the events of accounts. Its effects overlap, or come in the wrong order, if a ledger lets them.
type mirror struct {
	mu      sync.Mutex
	applied []string
	under   map[string]int
	end     func(e event) error
	takes   time.Duration
}

func (m *mirror) run(ctx context.Context, e event) (string, error) {
	m.mu.Lock()
	if m.under == nil {
		m.under = map[string]int{}
	}
	m.under[e.Account]++
	if m.under[e.Account] > 1 {
		m.applied = append(m.applied, "overlap")
	}
	m.mu.Unlock()
	time.Sleep(m.takes)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.under[e.Account]--
	if m.end != nil {
		if err := m.end(e); err != nil {
			return "", err
		}
	}
	m.applied = append(m.applied, e.ID)
	return "applied " + e.ID, nil
}

func (m *mirror) effect(policy idempotency.Abandoned) *idempotency.Effect[event, string] {
	e := inOrderOf(policy, m.run)
	e.Wait = -1
	return e
}

func (m *mirror) got() string { return strings.Join(m.applied, " ") }

func sequences(t testing.TB, s storage.Storage) (n int) {
	t.Helper()
	for _, err := range storage.All(context.Background(), s, storage.Prefix([]byte("idemver:"))) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// FEN-37, section 3, Order: newer events run, older ones are stale, and do not run; a duplicate of one that is sealed gets its receipt,
// however old; sources and tenants have nothing to do with each other.
func TestOrder(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, m := ledger(t, s), new(mirror)
		e := m.effect(idempotency.VerifyOrHold)
		do := func(v event) (idempotency.Receipt[string], error) { return e.Do(t.Context(), l, keyOf(v), v) }
		first, fifth := event{"e1", "a:%", "1"}, event{"e5", "a:%", "10"}
		for _, v := range []event{first, fifth, {"other", "b", "3"}} {
			if r, err := do(v); err != nil || r.Decision != idempotency.DecidedNew {
				t.Errorf("%+v: %+v, %v", v, r, err)
			}
		}
		r, err := do(event{"e4", "a:%", "9"})
		var stale *idempotency.StaleError
		if !errors.As(err, &stale) || stale.Version != "9" || stale.Sealed != "10" || r.Decision != idempotency.DecidedStale {
			t.Errorf("older: %+v, %v", r, err)
		}
		if r, err := do(first); err != nil || r.Decision != idempotency.DecidedDuplicate || r.Result != "applied e1" {
			t.Errorf("a duplicate: %+v, %v", r, err)
		}
		if _, err := e.Do(t.Context(), l, keyOf(first), event{"e1", "a:%", "11"}); !errors.Is(err, idempotency.ErrConflict) {
			t.Errorf("the same key with another request: %v", err)
		}
		k := keyOf(first)
		k.Tenant = "another"
		if r, err := e.Do(t.Context(), l, k, first); err != nil || r.Decision != idempotency.DecidedNew {
			t.Errorf("another tenant: %+v, %v", r, err)
		}
		if m.got() != "e1 e5 other e1" {
			t.Errorf("applied %s", m.got())
		}
		if i := info(t, l, idempotency.Key{Tenant: "shop:1", SourceType: "acme", SourceID: "e4", Action: "apply"}); i != nil {
			t.Errorf("the stale event left %+v", i)
		}
	})
}

// Section 3, Order: same version, other key: a conflict; with Ties both run.
func TestOrderOfEqualVersions(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		for _, ties := range []bool{false, true} {
			l, m := ledger(t, s), new(mirror)
			e := m.effect(idempotency.VerifyOrHold)
			e.Order.Compare, e.Order.Ties = idempotency.CompareTime, ties
			account := fmt.Sprint("ties ", ties)
			one, two := event{"1" + account, account, "2026-01-01T00:00:00Z"}, event{"2" + account, account, "2026-01-01T01:00:00+01:00"}
			if _, err := e.Do(t.Context(), l, keyOf(one), one); err != nil {
				t.Fatal(err)
			}
			r, err := e.Do(t.Context(), l, keyOf(two), two)
			if ties && (err != nil || r.Decision != idempotency.DecidedNew) || !ties && (!errors.Is(err, idempotency.ErrConflict) || r.Decision != idempotency.DecidedConflict) {
				t.Errorf("ties %v: %+v, %v", ties, r, err)
			}
			if want := map[bool]int{true: 2, false: 1}[ties]; len(m.applied) != want {
				t.Errorf("ties %v: applied %s", ties, m.got())
			}
		}
	})
}

// FEN-38: one at a time per source, also of several processes; those that come meanwhile wait, and then are older, or run.
func TestOrderOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := sharedStore(), &mirror{takes: 3 * time.Second}
		e := m.effect(idempotency.VerifyOrHold)
		e.Wait = time.Hour
		var all sync.WaitGroup
		results := map[string]error{}
		var mu sync.Mutex
		var ledgers []*idempotency.Ledger
		for range 3 {
			ledgers = append(ledgers, ledger(t, s.another()))
		}
		for i := range 12 {
			v := event{fmt.Sprintf("e%02d", i), "a", fmt.Sprint(i + 1)}
			l := ledgers[i%3]
			all.Go(func() {
				_, err := e.Do(t.Context(), l, keyOf(v), v)
				mu.Lock()
				defer mu.Unlock()
				results[v.ID] = err
			})
		}
		all.Wait()
		last := ""
		for _, id := range m.applied {
			if id <= last || id == "overlap" {
				t.Errorf("applied %s", m.got())
			}
			last = id
		}
		if last != "e11" || len(results) != 12 {
			t.Errorf("applied %s, %d answers", m.got(), len(results))
		}
		for id, err := range results {
			if strings.Contains(m.got(), id) != (err == nil) || err != nil && !errors.Is(err, idempotency.ErrStale) {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
}

// FEN-38, section 3, Order: while a living event has the slot, others are in progress; its end of each kind but doubt frees the slot.
func TestOrderSlot(t *testing.T) {
	for name, end := range map[string]error{"sealed": nil, "released": activity.NoEffect(errBroke), "failed": activity.NoEffect(activity.Permanent(errBroke)), "doubt": errBroke} {
		t.Run(name, func(t *testing.T) {
			onAllStores(t, func(t *testing.T, s storage.Storage) {
				l, m := ledger(t, s), new(mirror)
				begun, release := make(chan bool), make(chan bool)
				m.end = func(e event) error {
					if e.ID != "e1" {
						return nil
					}
					return end
				}
				slow := inOrderOf(idempotency.VerifyOrHold, func(ctx context.Context, e event) (string, error) {
					close(begun)
					<-release
					return m.run(ctx, e)
				})
				first, second := event{"e1", "a", "1"}, event{"e2", "a", "2"}
				done := make(chan bool)
				go func() { defer close(done); slow.Do(t.Context(), l, keyOf(first), first) }()
				<-begun
				e := m.effect(idempotency.VerifyOrHold)
				if _, err := e.Do(t.Context(), l, keyOf(second), second); !errors.Is(err, idempotency.ErrInProgress) {
					t.Errorf("meanwhile: %v", err)
				}
				close(release)
				<-done
				r, err := e.Do(t.Context(), l, keyOf(second), second)
				if end == errBroke {
					if !errors.Is(err, idempotency.ErrIndeterminate) || r.Decision != idempotency.DecidedIndeterminate {
						t.Errorf("while the first is in doubt: %+v, %v", r, err)
					}
					return
				}
				if err != nil {
					t.Errorf("then: %+v, %v", r, err)
				}
			})
		})
	}
}

// FEN-38, section 3, Order: a claim that lands late is refused if another event has left the slot and
// taken it again meanwhile, so that the slot names the same event as when the claim was decided.
func TestLateClaimOfASlotThatWasTakenAgain(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		slow := &hooked{inner: s, shared: true}
		mine, theirs := ledger(t, slow), ledger(t, slow.another())
		first, second := event{"e1", "a", "1"}, event{"e2", "a", "2"}
		begun, end, ended := make(chan bool, 1), make(chan error), make(chan bool)
		theirEffect := inOrderOf(idempotency.Hold, func(context.Context, event) (string, error) {
			begun <- true
			return "", <-end
		})
		try := func() { // of the first event
			theirEffect.Do(t.Context(), theirs, keyOf(first), first)
			ended <- true
		}
		go try()
		<-begun

		// The second event finds the first one in the slot, and its attempt over.
		at := []byte("idem:shop%3A1:acme:e1:")
		met := false
		slow.onGet(func(_ context.Context, key []byte) error {
			if bytes.HasPrefix(key, at) && !met {
				met = true
				end <- activity.NoEffect(errBroke)
				<-ended
			}
			return nil
		})
		// When its claim lands, there is a second attempt of the first event, of unknown outcome.
		var landed error
		slow.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
			if !claims(b) {
				return apply()
			}
			slow.onCommit(nil)
			go try()
			<-begun
			end <- errBroke
			<-ended
			landed = apply()
			return landed
		})
		m := new(mirror)
		_, err := m.effect(idempotency.Hold).Do(t.Context(), mine, keyOf(second), second)
		if !met || !errors.Is(landed, storage.ErrConflict) {
			t.Errorf("the late claim: %v, want a conflict", landed)
		}
		if !errors.Is(err, idempotency.ErrIndeterminate) || m.got() != "" {
			t.Errorf("got %v, applied %q; want nothing while the first event is in doubt", err, m.got())
		}
	})
}

// inDoubt leaves an event of version 2 in doubt, whose slot it keeps. The version 1 is sealed before it.
func inDoubt(t *testing.T, l *idempotency.Ledger, policy idempotency.Abandoned) (m *mirror, doubted event) {
	t.Helper()
	m, doubted = new(mirror), event{"e2", "a", "2"}
	m.end = func(e event) error {
		if e.ID == "e2" {
			return errBroke
		}
		return nil
	}
	for _, v := range []event{{"e1", "a", "1"}, doubted} {
		m.effect(policy).Do(t.Context(), l, keyOf(v), v)
	}
	if i := info(t, l, acting(keyOf(doubted))); i == nil || i.State != idempotency.StateIndeterminate {
		t.Fatalf("%+v", i)
	}
	m.end = nil
	return m, doubted
}

func acting(k idempotency.Key) idempotency.Key {
	k.Action = "apply"
	return k
}

// FEN-38, section 3, Order: a doubt ends by its redelivery, by Resolve and by Forget; then the next event runs.
func TestOrderDoubtEnds(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		for name, c := range map[string]struct {
			ends func(t *testing.T, l *idempotency.Ledger, m *mirror, v event)
			old  error // of an event between the first and the one in doubt, afterwards
		}{
			"redelivery": {func(t *testing.T, l *idempotency.Ledger, m *mirror, v event) {
				e := m.effect(idempotency.TakeOver)
				if r, err := e.Do(t.Context(), l, keyOf(v), v); err != nil || r.Attempt != 2 {
					t.Errorf("%+v, %v", r, err)
				}
			}, idempotency.ErrStale},
			"completed": {func(t *testing.T, l *idempotency.Ledger, m *mirror, v event) {
				must(t, l.Resolve(t.Context(), acting(keyOf(v)), 0, activity.CompletedWithResult("found"), by))
			}, idempotency.ErrStale},
			"not completed": {func(t *testing.T, l *idempotency.Ledger, m *mirror, v event) {
				must(t, l.Resolve(t.Context(), acting(keyOf(v)), 0, activity.NotCompleted[string](), by))
			}, nil},
			"failed": {func(t *testing.T, l *idempotency.Ledger, m *mirror, v event) {
				must(t, l.Resolve(t.Context(), acting(keyOf(v)), 0, activity.Failed("no"), by))
			}, nil},
			"forget": {func(t *testing.T, l *idempotency.Ledger, m *mirror, v event) {
				must(t, l.Forget(t.Context(), acting(keyOf(v)), by))
			}, nil},
		} {
			t.Run(name, func(t *testing.T) {
				s := exclusive{&hooked{inner: s}, "first"}
				l := ledger(t, s)
				m, v := inDoubt(t, l, idempotency.VerifyOrHold)
				next := event{"e3", "a", "3"}
				if _, err := m.effect(idempotency.VerifyOrHold).Do(t.Context(), l, keyOf(next), next); !errors.Is(err, idempotency.ErrIndeterminate) {
					t.Errorf("before: %v", err)
				}
				c.ends(t, l, m, v)
				between := event{"e1.5", "a", "1"}
				e := m.effect(idempotency.VerifyOrHold)
				e.Order.Ties = true
				if _, err := e.Do(t.Context(), l, keyOf(between), between); !errors.Is(err, c.old) || c.old == nil && err != nil {
					t.Errorf("one between: %v, want %v", err, c.old)
				}
				if r, err := m.effect(idempotency.VerifyOrHold).Do(t.Context(), l, keyOf(next), next); err != nil || r.Decision != idempotency.DecidedNew {
					t.Errorf("the next: %+v, %v", r, err)
				}
				for _, v := range []event{{"e1", "a", "1"}, v, between, next} {
					if err := l.Forget(t.Context(), acting(keyOf(v)), by); err != nil && !errors.Is(err, idempotency.ErrNotFound) {
						t.Error(err)
					}
				}
				if n := sequences(t, s); n != 0 {
					t.Errorf("%d records of order are left", n)
				}
			})
		}
	})
}

// FEN-38: Forget of a damaged key leaves nothing of it in the order of its source, which its record does not tell any more, and
// nothing else is changed.
func TestForgetOfADamagedEvent(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		other := event{"other", "b", "7"}
		if _, err := new(mirror).effect(idempotency.Hold).Do(t.Context(), l, keyOf(other), other); err != nil {
			t.Fatal(err)
		}
		untouched := dump(t, s)
		m, doubted := inDoubt(t, l, idempotency.VerifyOrHold)
		first, next := event{"e1", "a", "1"}, event{"e3", "a", "3"}
		forget := func(v event) {
			t.Helper()
			k := acting(keyOf(v))
			must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(stored(t, s, k).Key, []byte("damaged"))}}))
			must(t, l.Forget(t.Context(), k, by))
		}
		forget(doubted) // which was in the slot
		e := m.effect(idempotency.Hold)
		if _, err := e.Do(t.Context(), l, keyOf(first), event{"e1", "a", "1"}); err != nil {
			t.Errorf("a duplicate: %v", err)
		}
		older := event{"e0", "a", "0"}
		if _, err := e.Do(t.Context(), l, keyOf(older), older); !errors.Is(err, idempotency.ErrStale) {
			t.Errorf("older than what is sealed: %v", err)
		}
		if r, err := e.Do(t.Context(), l, keyOf(next), next); err != nil || r.Decision != idempotency.DecidedNew {
			t.Errorf("the next: %+v, %v", r, err)
		}
		forget(first)
		forget(next) // which was the newest
		if n := sequences(t, s); n != 1 {
			t.Errorf("%d records of order are left, want that of the other source", n)
		}
		left := dump(t, s)
		for _, part := range strings.Split(untouched, "\n") { // among them are the expiries of what is forgotten
			if !strings.Contains(left, part) {
				t.Errorf("left is %q, want also %q", left, part)
			}
		}
	})
}

// Section 3, Order: "under TakeOver a newer event's claim releases what lapsed or is indeterminate"; not an older one's, not another policy's, and nothing
// that lives.
func TestOrderEvict(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		m, doubted := inDoubt(t, l, idempotency.TakeOver)
		for _, policy := range []idempotency.Abandoned{idempotency.VerifyOrHold, idempotency.Hold} {
			v := event{"e3", "a", "3"}
			if _, err := m.effect(policy).Do(t.Context(), l, keyOf(v), v); !errors.Is(err, idempotency.ErrIndeterminate) {
				t.Errorf("%v: %v", policy, err)
			}
		}
		e := m.effect(idempotency.TakeOver)
		e.Order.Ties = true
		for _, version := range []string{"1", "2"} {
			v := event{"not newer " + version, "a", version}
			if _, err := e.Do(t.Context(), l, keyOf(v), v); !errors.Is(err, idempotency.ErrIndeterminate) {
				t.Errorf("not newer: %v", err)
			}
		}
		newer := event{"e3", "a", "3"}
		if r, err := e.Do(t.Context(), l, keyOf(newer), newer); err != nil || r.Decision != idempotency.DecidedNew {
			t.Fatalf("newer: %+v, %v", r, err)
		}
		if i := info(t, l, acting(keyOf(doubted))); i.State != idempotency.StateReleased {
			t.Errorf("the one before is %s", i.State)
		}
		if _, err := e.Do(t.Context(), l, keyOf(doubted), doubted); !errors.Is(err, idempotency.ErrStale) {
			t.Errorf("its redelivery: %v", err)
		}
	})
}

// FEN-27, decision 47: a newer event under TakeOver does not release one that may not happen twice. It waits until somebody knows what
// became of that.
func TestOrderDoesNotEvictWhatIsHeld(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		for _, policy := range []idempotency.Abandoned{idempotency.Hold, idempotency.VerifyOrHold} {
			l := ledger(t, s)
			m, doubted := inDoubt(t, l, policy)
			newer := event{"e3", "a", "3"}
			e := m.effect(idempotency.TakeOver)
			m.end = func(e event) error { return activity.NoEffect(errBroke) }
			if r, err := e.Do(t.Context(), l, keyOf(newer), newer); r.Decision != idempotency.DecidedIndeterminate {
				t.Errorf("%v: newer: %+v, %v", policy, r, err)
			}
			m.end = nil
			if r, err := m.effect(policy).Do(t.Context(), l, keyOf(doubted), doubted); r.Decision != idempotency.DecidedIndeterminate || m.got() != "e1" {
				t.Errorf("%v: its redelivery: %+v, %v; applied %s", policy, r, err, m.got())
			}
			must(t, l.Resolve(t.Context(), acting(keyOf(doubted)), 0, activity.CompletedWithResult("found"), by))
			if r, err := e.Do(t.Context(), l, keyOf(newer), newer); err != nil || r.Decision != idempotency.DecidedNew {
				t.Errorf("%v: then: %+v, %v", policy, r, err)
			}
			for _, v := range []event{{ID: "e1"}, doubted, newer} {
				must(t, l.Forget(t.Context(), acting(keyOf(v)), by))
			}
		}
	})
}

// Section 3, Order: a lapsed event is evicted as well; under Hold it blocks its source until it is resolved.
func TestOrderAfterACrash(t *testing.T) {
	for _, policy := range []idempotency.Abandoned{idempotency.Hold, idempotency.TakeOver} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, v := new(mirror), event{"e1", "a", "1"}
				s := crash(t, func(l *idempotency.Ledger, died func()) {
					m.end = func(event) error { died(); return nil }
					if _, err := m.effect(policy).Do(t.Context(), l, keyOf(v), v); !errors.Is(err, errDown) {
						t.Fatal(err)
					}
				})
				m.end = nil
				l := ledger(t, s)
				next := event{"e2", "a", "2"}
				r, err := m.effect(policy).Do(t.Context(), l, keyOf(next), next)
				if policy == idempotency.TakeOver {
					if err != nil {
						t.Errorf("got %+v, %v", r, err)
					}
					if i := info(t, l, acting(keyOf(v))); i.State != idempotency.StateReleased {
						t.Errorf("the one that lapsed is %s", i.State)
					}
					return
				}
				if !errors.Is(err, idempotency.ErrIndeterminate) {
					t.Errorf("got %+v, %v", r, err)
				}
				must(t, l.Resolve(t.Context(), acting(keyOf(v)), 0, activity.CompletedWithResult("found"), by))
				if r, err := m.effect(policy).Do(t.Context(), l, keyOf(next), next); err != nil {
					t.Errorf("then: %+v, %v", r, err)
				}
			})
		})
	}
}

// Section 3: the slot and the version are in the record's batch: it holds only if the order is as it was read.
func TestOrderIsInTheBatch(t *testing.T) {
	s := exclusiveStore()
	l, m := ledger(t, s), new(mirror)
	s.onCommit(func(_ context.Context, b storage.Batch, apply func() error) error {
		if touches(b, "idem:") {
			conditions := 0
			for _, c := range b.If {
				if strings.HasPrefix(string(c.Key), "idemver:") && c.Kind != storage.IsPresent {
					conditions++
				}
			}
			if conditions != 1 || !touches(b, "idemver:") {
				t.Errorf("%d conditions on the order: %+v", conditions, b)
			}
		}
		return apply()
	})
	for i, end := range []error{nil, activity.NoEffect(errBroke), activity.NoEffect(activity.Permanent(errBroke)), errBroke} {
		v := event{fmt.Sprint(i), "a", fmt.Sprint(i + 1)}
		m.end = func(event) error { return end }
		m.effect(idempotency.VerifyOrHold).Do(t.Context(), l, keyOf(v), v)
	}
}

// Section 2, Order: an empty, huge or incomparable version, or source, is ErrInvalid, and nothing is written.
func TestOrderIsValidated(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, m := ledger(t, s), new(mirror)
		for _, v := range []event{
			{"e", "", "1"}, {"e", "a", ""}, {"e", "a", "one"}, {"e", "a", "1.5"}, {"e", strings.Repeat("x", 256), "1"}, {"e", "a", strings.Repeat("1", 256)},
			{"e", "\xff", "1"}, {"e", "a\x00", "1"}, {"e", "a", "1\x00"},
		} {
			if r, err := m.effect(idempotency.VerifyOrHold).Do(t.Context(), l, keyOf(v), v); !errors.Is(err, idempotency.ErrInvalid) || r.Decision != "" {
				t.Errorf("%.20q: %+v, %v", v, r, err)
			}
		}
		panics := m.effect(idempotency.VerifyOrHold)
		panics.Order.Version = func(event) string { panic("no version") }
		v := event{"e", "a", "1"}
		if _, err := panics.Do(t.Context(), l, keyOf(v), v); !errors.Is(err, idempotency.ErrInvalid) {
			t.Errorf("a panic: %v", err)
		}
		if stored := dump(t, s); stored != "" || len(m.applied) != 0 {
			t.Errorf("applied %s; stored %s", m.got(), stored)
		}
		longest := event{strings.Repeat("%", 255), strings.Repeat("%", 255), strings.Repeat("1", 255)}
		k := idempotency.Key{Tenant: strings.Repeat("%", 100), SourceType: strings.Repeat(":", 200), SourceID: longest.ID, Revision: strings.Repeat("%", 255), IndexHash: strings.Repeat("%", 255), Action: strings.Repeat("%", 100)}
		for _, want := range []idempotency.Decision{idempotency.DecidedNew, idempotency.DecidedDuplicate} {
			if r, err := m.effect(idempotency.VerifyOrHold).Do(t.Context(), l, k, longest); err != nil || r.Decision != want {
				t.Errorf("the longest key: %+v, %v", r, err)
			}
		}
	})
}

// A Compare that fails or panics for what is stored is an error of the call, and runs nothing. The event is not to blame.
func TestOrderThatCannotBeCompared(t *testing.T) {
	for name, compare := range map[string]func(a, b string) (int, error){
		"error": func(a, b string) (int, error) {
			if a != b {
				return 0, errBroke
			}
			return 0, nil
		},
		"panic": func(a, b string) (int, error) {
			if a != b {
				panic(errBroke)
			}
			return 0, nil
		},
		"invalid": func(a, b string) (int, error) {
			if a != b {
				return 0, fmt.Errorf("%w: %w", idempotency.ErrInvalid, errBroke)
			}
			return 0, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, m := ledger(t, exclusiveStore()), new(mirror)
			e := m.effect(idempotency.VerifyOrHold)
			e.Order.Compare = compare
			first, second := event{"e1", "a", "1"}, event{"e2", "a", "2"}
			if _, err := e.Do(t.Context(), l, keyOf(first), first); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("Do panicked: %v", p)
				}
			}()
			check := func(v event, applied int) {
				t.Helper()
				r, err := e.Do(t.Context(), l, keyOf(v), v)
				if err == nil || !strings.Contains(err.Error(), errBroke.Error()) || errors.Is(err, idempotency.ErrInvalid) || r.Decision != "" || len(m.applied) != applied {
					t.Errorf("%+v, %v; applied %s", r, err, m.got())
				}
			}
			check(second, 1)
			// The same of what is under way.
			l, m = ledger(t, exclusiveStore()), new(mirror)
			m.end = func(event) error { return errBroke }
			e = m.effect(idempotency.VerifyOrHold)
			e.Order.Compare = compare
			if _, err := e.Do(t.Context(), l, keyOf(first), first); !errors.Is(err, idempotency.ErrIndeterminate) {
				t.Fatal(err)
			}
			check(second, 0)
		})
	}
}

// Section 3: the fencing tokens of a source rise, from event to event.
func TestOrderTokensRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger(t, exclusiveStore())
		var last uint64
		for i := range 5 {
			v := event{fmt.Sprint(i), "a", fmt.Sprint(i)}
			e := inOrderOf(idempotency.VerifyOrHold, func(ctx context.Context, _ event) (string, error) {
				token := activity.InfoFrom(ctx).FencingToken
				if token <= last {
					t.Errorf("token %d after %d", token, last)
				}
				last = token
				return "", nil
			})
			if _, err := e.Do(t.Context(), l, keyOf(v), v); err != nil {
				t.Error(err)
			}
		}
	})
}

// In a transaction, an order holds too: the slot is taken and freed in it, and an error of Run leaves no trace, also not of an eviction.
func TestOrderInTransaction(t *testing.T) {
	onHosts(t, func(t *testing.T, h host) {
		l := ledger(t, h.store)
		m, doubted := inDoubt(t, l, idempotency.TakeOver)
		before := dump(t, h.store)
		newer := event{"e3", "a", "3"}
		m.end = func(event) error { return errBroke }
		tx := h.begin()
		if _, err := m.effect(idempotency.TakeOver).Do(t.Context(), l.In(tx), keyOf(newer), newer); !errors.Is(err, errBroke) {
			t.Errorf("got %v", err)
		}
		must(t, tx.commit())
		if after := dump(t, h.store); after != before {
			t.Errorf("before: %s\nafter: %s", before, after)
		}
		m.end = nil
		tx = h.begin()
		if r, err := m.effect(idempotency.TakeOver).Do(t.Context(), l.In(tx), keyOf(newer), newer); err != nil || r.Decision != idempotency.DecidedNew {
			t.Errorf("got %+v, %v", r, err)
		}
		must(t, tx.commit())
		if i := info(t, l, acting(keyOf(doubted))); i.State != idempotency.StateReleased {
			t.Errorf("the one in doubt is %s", i.State)
		}
		tx = h.begin()
		if _, err := m.effect(idempotency.TakeOver).Do(t.Context(), l.In(tx), keyOf(doubted), doubted); !errors.Is(err, idempotency.ErrStale) {
			t.Errorf("its redelivery: %v", err)
		}
		must(t, tx.rollback())
	})
}
