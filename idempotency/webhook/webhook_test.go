package webhook_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/webhook"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

var errDeclined = errors.New("declined")

// FEN-29, FEN-33, FEN-34: deliveries of one event, many of them at once and over TCP, make one effect.
// Each is answered in the end, with the same effect id.
func TestDeliveriesMakeOneEffect(t *testing.T) {
	s := open(t)
	server := httptest.NewServer(s.hook)
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	body := encode(t, Paid{Account: "a", Cents: 100})
	post := func() answer {
		r, err := http.NewRequest(http.MethodPost, server.URL, bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return answer{}
		}
		r.Header = headers(t, secret, "evt_1", body)
		w, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return answer{}
		}
		return answerOf(t, w)
	}
	const n = 32
	answers := make([]answer, n)
	var provider sync.WaitGroup
	for i := range answers {
		provider.Go(func() {
			for answers[i] = post(); answers[i].Status == http.StatusServiceUnavailable; answers[i] = post() {
			}
		})
	}
	provider.Wait()
	answers = append(answers, post())
	decided := map[string]int{}
	for _, a := range answers {
		decided[a.Decision]++
		if a.Status != http.StatusOK || a.EffectID == "" || a.EffectID != answers[0].EffectID {
			t.Errorf("%d %s, want 200 with the effect id %s", a.Status, a.Body, answers[0].EffectID)
		}
	}
	if s.ran() != 1 || decided["new"] != 1 || decided["duplicate"] != n {
		t.Errorf("%d runs, decisions %v; want 1 run, 1 new and %d duplicates", s.ran(), decided, n)
	}
}

// FEN-33, FEN-34: the answer is the effect id and the decision, and has nothing else.
func TestAnswer(t *testing.T) {
	s := open(t, func(c *config) { c.Effect.EffectID = func(_ Paid, out string) string { return out } })
	for _, want := range []string{
		`{"effect_id":"paid 1","decision":"new"}`,
		`{"effect_id":"paid 1","decision":"duplicate"}`,
	} {
		if a := s.deliver("evt_1", Paid{Cents: 100}); a.Status != http.StatusOK || strings.TrimSpace(a.Body) != want {
			t.Errorf("%d %s, want 200 %s", a.Status, a.Body, want)
		}
	}
}

// FEN-32: the key is of the provider, the event's id, its version and its action.
func TestKey(t *testing.T) {
	var keys []idempotency.Key
	s := open(t, func(c *config) {
		c.Tenant = "shop-1"
		c.Effect.Run = func(ctx context.Context, _ Paid) (string, error) {
			keys = append(keys, idempotency.AttemptFrom(ctx).Key)
			return "", nil
		}
	})
	s.deliver("evt_1", Paid{Version: "2", Action: "paid"}).is(t, http.StatusOK, idempotency.DecidedNew)
	s.deliver("evt_1", Paid{Version: "3", Action: "paid"}).is(t, http.StatusOK, idempotency.DecidedNew)
	s.deliver("evt_1", Paid{Version: "3", Action: "refunded"}).is(t, http.StatusOK, idempotency.DecidedNew)
	s.deliver("evt_1", Paid{Version: "3"}).is(t, http.StatusOK, idempotency.DecidedNew)
	want := []idempotency.Key{
		{Tenant: "shop-1", SourceType: "acme", SourceID: "evt_1", Revision: "2", Action: "paid"},
		{Tenant: "shop-1", SourceType: "acme", SourceID: "evt_1", Revision: "3", Action: "paid"},
		{Tenant: "shop-1", SourceType: "acme", SourceID: "evt_1", Revision: "3", Action: "refunded"},
		{Tenant: "shop-1", SourceType: "acme", SourceID: "evt_1", Revision: "3", Action: "mark-paid"},
	}
	if fmt.Sprint(keys) != fmt.Sprint(want) {
		t.Errorf("keys %v, want %v", keys, want)
	}
}

// FEN-35: a result that is not in the record is loaded, and only then is the provider told to stop.
func TestReceiptLoadsTheResult(t *testing.T) {
	var loaded []webhook.Event
	var lost error
	s := openOn(t, idempotency.Config{MaxResult: 100}, func(c *config) {
		c.Effect.Run = func(context.Context, Paid) (string, error) { return strings.Repeat("x", 200), nil }
		c.Receipt = func(_ context.Context, e webhook.Event) (string, error) {
			loaded = append(loaded, e)
			return strings.Repeat("x", 200), lost
		}
	})
	first := s.deliver("evt_1", Paid{Action: "paid"})
	first.is(t, http.StatusOK, idempotency.DecidedNew)
	again := s.deliver("evt_1", Paid{Action: "paid"})
	again.is(t, http.StatusOK, idempotency.DecidedDuplicate)
	if again.EffectID != first.EffectID {
		t.Errorf("effect ids %q and %q", first.EffectID, again.EffectID)
	}
	lost = errors.New("the table is away")
	s.deliver("evt_1", Paid{Action: "paid"}).is(t, http.StatusServiceUnavailable, idempotency.DecidedDuplicate)
	want := webhook.Event{ID: "evt_1", Action: "paid"}
	if len(loaded) < 2 || loaded[len(loaded)-1] != want {
		t.Errorf("loaded for %v, want %v each time", loaded, want)
	}
}

// FEN-35: loading a result ends with the request, and after the Timeout of the effect. Run does not end with the request.
func TestReceiptEnds(t *testing.T) {
	for name, want := range map[string]time.Duration{"the provider hangs up": 3 * time.Second, "timeout": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openOn(t, idempotency.Config{MaxResult: 100}, func(c *config) {
					c.Effect.Timeout = 5 * time.Second
					c.Effect.Run = func(ctx context.Context, p Paid) (string, error) { return strings.Repeat("x", 200), ctx.Err() }
					c.Receipt = func(ctx context.Context, _ webhook.Event) (string, error) {
						<-ctx.Done()
						return "", ctx.Err()
					}
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if want < 5*time.Second {
					time.AfterFunc(want, cancel)
				}
				begun, body := time.Now(), encode(t, Paid{})
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/hooks/acme", bytes.NewReader(body))
				r.Header = headers(t, secret, "evt_1", body)
				w := httptest.NewRecorder()
				s.hook.ServeHTTP(w, r)
				answerOf(t, w.Result()).is(t, http.StatusServiceUnavailable, idempotency.DecidedNew)
				if took := time.Since(begun); took != want {
					t.Errorf("it took %v, want %v", took, want)
				}
			})
		})
	}
}

// Without a Receipt, the effect has happened nevertheless, and the provider is told so.
func TestResultThatIsNotInTheRecord(t *testing.T) {
	s := openOn(t, idempotency.Config{MaxResult: 100}, func(c *config) {
		c.Effect.Run = func(context.Context, Paid) (string, error) { return strings.Repeat("x", 200), nil }
	})
	s.deliver("evt_1", Paid{}).is(t, http.StatusOK, idempotency.DecidedNew)
	s.deliver("evt_1", Paid{}).is(t, http.StatusOK, idempotency.DecidedDuplicate)
}

// FEN-37: what is older than the last sealed event of its source is stale, and is not run. Another source
// has its own order.
func TestOlderEventIsStale(t *testing.T) {
	for _, status := range []int{0, http.StatusOK, http.StatusConflict} {
		s := open(t, func(c *config) { c.Compare, c.StaleStatus = idempotency.CompareInt, status })
		s.deliver("evt_10", Paid{Account: "a", Seq: "10"}).is(t, http.StatusOK, idempotency.DecidedNew)
		a := s.deliver("evt_9", Paid{Account: "a", Seq: "9"})
		if a.is(t, max(status, http.StatusOK), idempotency.DecidedStale); status == http.StatusConflict && a.Code != "idempotency_stale" {
			t.Errorf("%s", a.Body)
		}
		s.deliver("evt_b", Paid{Account: "b", Seq: "1"}).is(t, http.StatusOK, idempotency.DecidedNew)
		s.deliver("evt_11", Paid{Account: "a", Seq: "11"}).is(t, http.StatusOK, idempotency.DecidedNew)
		s.deliver("evt_10", Paid{Account: "a", Seq: "10"}).is(t, http.StatusOK, idempotency.DecidedDuplicate)
		if s.ran() != 3 {
			t.Errorf("%d runs, want 3: %v", s.ran(), s.runs)
		}
	}
}

// Without a Sequence, the Version orders events.
func TestVersionOrders(t *testing.T) {
	s := open(t, func(c *config) { c.Compare = idempotency.CompareInt })
	s.deliver("evt_1", Paid{Account: "a", Version: "10"}).is(t, http.StatusOK, idempotency.DecidedNew)
	s.deliver("evt_2", Paid{Account: "a", Version: "9"}).is(t, http.StatusOK, idempotency.DecidedStale)
	s.deliver("evt_3", Paid{Account: "a", Version: "1", Seq: "11"}).is(t, http.StatusOK, idempotency.DecidedNew)
}

// FEN-36: times of creation order events, in whatever zone they are written. Two of one time both happen.
func TestCompareTime(t *testing.T) {
	s := open(t, func(c *config) { c.Compare, c.Ties = idempotency.CompareTime, true })
	s.deliver("evt_1", Paid{Account: "a", Seq: "2026-11-03T20:00:00Z"}).is(t, http.StatusOK, idempotency.DecidedNew)
	s.deliver("evt_2", Paid{Account: "a", Seq: "2026-11-03T20:30:00+01:00"}).is(t, http.StatusOK, idempotency.DecidedStale)
	s.deliver("evt_3", Paid{Account: "a", Seq: "2026-11-03T19:30:00-01:00"}).is(t, http.StatusOK, idempotency.DecidedNew)
	s.deliver("evt_4", Paid{Account: "a", Seq: "2026-11-03T20:30:00Z"}).is(t, http.StatusOK, idempotency.DecidedNew)
	if s.ran() != 3 {
		t.Errorf("%d runs, want 3: %v", s.ran(), s.runs)
	}
}

// FEN-36: without Ties, another event with the version of the last one is a conflict.
func TestSameVersionOfAnotherEvent(t *testing.T) {
	s := open(t, func(c *config) { c.Compare = idempotency.CompareInt })
	s.deliver("evt_1", Paid{Account: "a", Seq: "1"}).is(t, http.StatusOK, idempotency.DecidedNew)
	s.deliver("evt_2", Paid{Account: "a", Seq: "1"}).is(t, http.StatusConflict, idempotency.DecidedConflict)
	if s.ran() != 1 {
		t.Errorf("%d runs, want 1", s.ran())
	}
}

// FEN-37: an event that has no version, or none that can be compared, is refused where events are ordered.
// So is one without a source: it would be ordered with all others. The store is not asked.
func TestEventWithoutVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, func(c *config) { c.Compare = idempotency.CompareInt })
		synctest.Wait()
		before := s.store.Calls()
		for _, p := range []Paid{{Account: "a"}, {Account: "a", Seq: "latest"}, {Account: "a", Version: "1.5"}, {Seq: "1"}} {
			if a := s.deliver("evt_1", p); a.Status != http.StatusBadRequest || a.Code != "invalid_event" {
				t.Errorf("%+v: %d %s, want 400", p, a.Status, a.Body)
			}
		}
		if calls := s.store.Calls() - before; calls != 0 || s.ran() != 0 {
			t.Errorf("%d calls of the store and %d runs", calls, s.ran())
		}
	})
}

// FEN-38: the events of one source take effect one at a time. A delivery does not wait for another one.
func TestOneAtATimePerSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan bool)
		s := open(t, func(c *config) {
			c.Compare = idempotency.CompareInt
			run := c.Effect.Run
			c.Effect.Run = func(ctx context.Context, p Paid) (string, error) {
				if p.Account == "a" && p.Seq == "1" {
					<-finish
				}
				return run(ctx, p)
			}
		})
		var provider sync.WaitGroup
		provider.Go(func() {
			s.deliver("evt_1", Paid{Account: "a", Seq: "1"}).is(t, http.StatusOK, idempotency.DecidedNew)
		})
		synctest.Wait()
		begun := time.Now()
		s.deliver("evt_1", Paid{Account: "a", Seq: "1"}).is(t, http.StatusServiceUnavailable, idempotency.DecidedInProgress)
		s.deliver("evt_2", Paid{Account: "a", Seq: "2"}).is(t, http.StatusServiceUnavailable, idempotency.DecidedInProgress)
		s.deliver("evt_3", Paid{Account: "b", Seq: "1"}).is(t, http.StatusOK, idempotency.DecidedNew)
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("a delivery waited for another one: %v", waited)
		}
		finish <- true
		provider.Wait()
		s.deliver("evt_2", Paid{Account: "a", Seq: "2"}).is(t, http.StatusOK, idempotency.DecidedNew)
		if s.ran() != 3 {
			t.Errorf("%d runs, want 3: %v", s.ran(), s.runs)
		}
	})
}

// FEN-29: the same event with other data is a conflict, and the answer does not show what differs. What
// Fingerprint leaves out may differ.
func TestConflict(t *testing.T) {
	s := open(t)
	first := s.deliver("evt_1", Paid{Account: "secret-a", Cents: 100})
	a := s.deliver("evt_1", Paid{Account: "secret-b", Cents: 100})
	a.is(t, http.StatusConflict, idempotency.DecidedConflict)
	if a.EffectID != first.EffectID || a.Code != "idempotency_conflict" {
		t.Errorf("the answer is %s, want the effect id %s", a.Body, first.EffectID)
	}
	for _, shown := range []string{"secret", "diff", "Account"} {
		if strings.Contains(a.Body, shown) {
			t.Errorf("the answer shows %q: %s", shown, a.Body)
		}
	}
	s = open(t, func(c *config) { c.Effect.Fingerprint = func(p Paid) any { return p.Cents } })
	s.deliver("evt_1", Paid{Account: "a", Cents: 100}).is(t, http.StatusOK, idempotency.DecidedNew)
	s.deliver("evt_1", Paid{Account: "b", Cents: 100}).is(t, http.StatusOK, idempotency.DecidedDuplicate)
	s.deliver("evt_1", Paid{Account: "a", Cents: 101}).is(t, http.StatusConflict, idempotency.DecidedConflict)
}

// FEN-29: each end of Run has its answer, to the first delivery and to the next.
func TestEndsOfRun(t *testing.T) {
	for _, c := range []struct {
		name          string
		err           error
		first, second int
		decisions     [2]idempotency.Decision
		runs          int
	}{
		{"it happened", nil, 200, 200, [2]idempotency.Decision{"new", "duplicate"}, 1},
		{"nothing happened", activity.NoEffect(errDeclined), 503, 503, [2]idempotency.Decision{"released", "released"}, 2},
		{"it never will", activity.NoEffect(activity.Permanent(errDeclined)), 200, 200, [2]idempotency.Decision{"failed", "failed"}, 1},
		{"nobody knows", errDeclined, 503, 503, [2]idempotency.Decision{"indeterminate", "indeterminate"}, 1},
		// What another Do in Run said is not said of this event.
		{"another is stale", activity.NoEffect(&idempotency.StaleError{}), 503, 503, [2]idempotency.Decision{"released", "released"}, 2},
		{"another failed", activity.NoEffect(&idempotency.FailedError{}), 503, 503, [2]idempotency.Decision{"released", "released"}, 2},
		{"another is invalid", activity.NoEffect(idempotency.ErrInvalid), 503, 503, [2]idempotency.Decision{"released", "released"}, 2},
		{"another has lost its result", activity.NoEffect(&idempotency.ResultUnavailableError{}), 503, 503, [2]idempotency.Decision{"released", "released"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, func(cfg *config) {
				run := cfg.Effect.Run
				cfg.Effect.Run = func(ctx context.Context, p Paid) (string, error) {
					out, _ := run(ctx, p)
					return out, c.err
				}
			})
			first := s.deliver("evt_1", Paid{Cents: 100})
			first.is(t, c.first, c.decisions[0])
			second := s.deliver("evt_1", Paid{Cents: 100})
			second.is(t, c.second, c.decisions[1])
			if first.EffectID == "" || first.EffectID != second.EffectID {
				t.Errorf("effect ids %q and %q", first.EffectID, second.EffectID)
			}
			if s.ran() != c.runs {
				t.Errorf("%d runs, want %d", s.ran(), c.runs)
			}
			if strings.Contains(first.Body+second.Body, errDeclined.Error()) {
				t.Errorf("the answers show the error: %s %s", first.Body, second.Body)
			}
		})
	}
}

// Status chooses the status after a release, and nothing else.
func TestStatus(t *testing.T) {
	for chosen, want := range map[int]int{400: 400, 404: 404, 599: 599, 0: 503, 200: 503, 399: 503, 600: 503, 503: 503} {
		err := activity.NoEffect(errDeclined)
		s := open(t, func(c *config) {
			c.Effect.Run = func(context.Context, Paid) (string, error) { return "", err }
			c.Status = func(err error) int {
				if !errors.Is(err, errDeclined) {
					t.Errorf("Status got %v, want %v", err, errDeclined)
				}
				return chosen
			}
		})
		s.deliver("evt_1", Paid{}).is(t, want, idempotency.DecidedReleased)
		err = errDeclined
		s.deliver("evt_1", Paid{}).is(t, http.StatusServiceUnavailable, idempotency.DecidedIndeterminate)
	}
}

// FEN-33: before the seal is durable there is no answer of success, and the provider delivers again.
func TestStoreThatFails(t *testing.T) {
	var fails bool
	s := &shop{t: t, store: storagetest.NewFaulty(new(memory.Store), func(c storagetest.Call) storagetest.Fault {
		if fails && c.Method == "Get" && bytes.HasPrefix(c.Key, []byte("idem:")) {
			return storagetest.ErrorBefore
		}
		return storagetest.None
	})}
	ledger, err := idempotency.New(idempotency.Config{Storage: s.store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ledger.Close() })
	s.hook, err = webhook.New(config{
		Ledger: ledger, Provider: "acme", Signature: standard(t, secret), Event: parse,
		Effect: &idempotency.Effect[Paid, string]{Name: "mark-paid", Run: s.run},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	fails = true
	if a := s.deliver("evt_1", Paid{}); a.Status != http.StatusServiceUnavailable || s.ran() != 0 {
		t.Errorf("%d %s and %d runs, want 503 and none", a.Status, a.Body, s.ran())
	}
	fails = false
	s.deliver("evt_1", Paid{}).is(t, http.StatusOK, idempotency.DecidedNew)
	if err := ledger.Close(); err != nil {
		t.Fatal(err)
	}
	if a := s.deliver("evt_1", Paid{}); a.Status != http.StatusServiceUnavailable {
		t.Errorf("after Close: %d %s, want 503", a.Status, a.Body)
	}
}

// What is no event, or has no valid key, is refused, and nothing is run. Parts of a key that are in an event
// are bytes: none has another reading.
func TestEventsThatAreRefused(t *testing.T) {
	s := open(t, func(c *config) { c.MaxBody = 1000 })
	long := strings.Repeat("x", 256)
	for name, body := range map[string]string{
		"no JSON":          "{",
		"empty":            "",
		"long version":     `{"Version":"` + long + `"}`,
		"long action":      `{"Action":"` + long[:101] + `"}`,
		"NUL in an action": `{"Action":"a\u0000"}`,
	} {
		if a := s.request(headers(t, secret, "evt_1", []byte(body)), []byte(body)); a.Status != http.StatusBadRequest || a.Code != "invalid_event" {
			t.Errorf("%s: %d %s, want 400", name, a.Status, a.Body)
		}
	}
	for _, id := range []string{long, "\xff", "a\x00"} {
		if a := s.deliver(id, Paid{}); a.Status != http.StatusBadRequest {
			t.Errorf("id %q: %d %s, want 400", id, a.Status, a.Body)
		}
	}
	big := []byte(`"` + strings.Repeat("x", 1000) + `"`)
	if a := s.request(headers(t, secret, "evt_1", big), big); a.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d bytes: %d, want 413", len(big), a.Status)
	}
	if s.ran() != 0 {
		t.Errorf("%d runs, want none", s.ran())
	}
	ids := map[string]bool{}
	for _, id := range []string{"a:b", "a%3Ab", "a", "a ", "A", strings.Repeat("x", 255)} {
		a := s.deliver(id, Paid{})
		a.is(t, http.StatusOK, idempotency.DecidedNew)
		ids[a.EffectID] = true
	}
	if len(ids) != 6 {
		t.Errorf("%d effects, want 6", len(ids))
	}
}

// FEN-17, FEN-20: a result is kept for 14 days from its seal; the policies and the Effect may say otherwise.
func TestRetention(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		days   int
		effect time.Duration
		want   time.Duration
	}{{0, 0, 14 * day}, {30, 0, 30 * day}, {30, 15 * day, 15 * day}} {
		s := openOn(t, idempotency.Config{Policies: idempotency.Policies{TTL: idempotency.TTLPolicy{WebhookDays: c.days}}},
			func(cfg *config) { cfg.Effect.Retention = c.effect })
		s.deliver("evt_1", Paid{}).is(t, http.StatusOK, idempotency.DecidedNew)
		n := 0
		for i, err := range s.ledger.List(t.Context(), idempotency.Filter{}) {
			if n++; err != nil {
				t.Fatal(err)
			}
			if got := i.Expires.Sub(i.SealedAt); got != c.want {
				t.Errorf("%d days and Retention %v: kept for %v, want %v", c.days, c.effect, got, c.want)
			}
		}
		if n != 1 {
			t.Errorf("%d keys, want 1", n)
		}
	}
}

// FEN-14, FEN-20, FEN-62: New refuses a Retention that is less than twice as long as providers deliver again, or not longer
// than the Ledger's Lease, and whatever else cannot work.
func TestConfigThatIsRefused(t *testing.T) {
	s := open(t)
	for field, change := range map[string]func(*config){
		"Ledger":             func(c *config) { c.Ledger = nil },
		"Provider":           func(c *config) { c.Provider = "" },
		"Provider ":          func(c *config) { c.Provider = strings.Repeat("x", 201) },
		"Provider  ":         func(c *config) { c.Provider = "a\x00" },
		"Tenant":             func(c *config) { c.Tenant = "\xff" },
		"Signature":          func(c *config) { c.Signature = nil },
		"Event":              func(c *config) { c.Event = nil },
		"Effect":             func(c *config) { c.Effect = nil },
		"Effect.Run":         func(c *config) { c.Effect.Run = nil },
		"StaleStatus":        func(c *config) { c.StaleStatus = 500 },
		"MaxBody":            func(c *config) { c.MaxBody = -1 },
		"Ties":               func(c *config) { c.Ties = true },
		"Effect.Retention":   func(c *config) { c.Effect.Retention = 14*24*time.Hour - 1 },
		"Effect.Retention  ": func(c *config) { c.Effect.RetryHorizon = 8 * 24 * time.Hour },
		"Effect.Retention   ": func(c *config) {
			c.Effect.Retention = c.Ledger.Lease()
			c.Effect.RetryHorizon = c.Effect.Retention / 2
		},
		"Compare": func(c *config) {
			c.Compare = idempotency.CompareInt
			c.Effect.Order = &idempotency.Order[Paid]{
				Source: func(p Paid) string { return p.Account }, Version: func(p Paid) string { return p.Seq }, Compare: idempotency.CompareInt,
			}
		},
	} {
		c := config{
			Ledger: s.ledger, Provider: "acme", Signature: standard(t, secret), Event: parse,
			Effect: &idempotency.Effect[Paid, string]{Name: "mark-paid", Run: s.run},
		}
		if _, err := webhook.New(c); err != nil {
			t.Fatal(err)
		}
		change(&c)
		h, err := webhook.New(c)
		var bad *idempotency.ConfigError
		if h != nil || !errors.Is(err, idempotency.ErrInvalid) || !errors.As(err, &bad) || !strings.Contains(bad.Field, strings.TrimSpace(field)) {
			t.Errorf("%s: %v, want a *ConfigError of it", field, err)
		}
	}
	_, err := webhook.New(config{})
	for _, field := range []string{"Ledger", "Provider", "Signature", "Event", "Effect"} {
		if err == nil || !strings.Contains(err.Error(), "webhook.Config."+field) {
			t.Errorf("nothing is set: %v does not name %s", err, field)
		}
	}
}

// New changes no Effect: others may use it, and their calls wait.
func TestEffectIsNotChanged(t *testing.T) {
	var e *idempotency.Effect[Paid, string]
	open(t, func(c *config) { e, c.Compare = c.Effect, idempotency.CompareInt }).deliver("evt_1", Paid{Account: "a", Seq: "1"})
	if e.Wait != 0 || e.Retention != 0 || e.RetryHorizon != 0 || e.Order != nil {
		t.Errorf("it is %+v", e)
	}
}

// Run goes on when the provider hangs up, and its result counts.
func TestProviderThatHangsUp(t *testing.T) {
	running, gone, done := make(chan bool), make(chan bool), make(chan error, 1)
	s := open(t, func(c *config) {
		c.Effect.Run = func(ctx context.Context, p Paid) (string, error) {
			running <- true
			<-gone
			done <- ctx.Err()
			return "paid", ctx.Err()
		}
	})
	body := encode(t, Paid{Cents: 100})
	ctx, hangUp := context.WithCancel(t.Context())
	var provider sync.WaitGroup
	provider.Go(func() {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body))
		r.Header = headers(t, secret, "evt_1", body)
		s.hook.ServeHTTP(httptest.NewRecorder(), r)
	})
	<-running
	hangUp()
	gone <- true
	if err := <-done; err != nil {
		t.Errorf("the context of Run ended: %v", err)
	}
	provider.Wait()
	s.deliver("evt_1", Paid{Cents: 100}).is(t, http.StatusOK, idempotency.DecidedDuplicate)
}
