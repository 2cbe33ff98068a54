package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/membership"
	"github.com/weft-go/weft/internal/pgtest"
	"github.com/weft-go/weft/internal/torture"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/postgres"
)

// A proving store is a shared one in memory that is a storage.Prover.
type proving struct {
	sharing
	mu       sync.Mutex
	sessions []*provingSession
	none     bool                    // it offers no sessions
	refuses  error                   // of OpenSession
	silent   error                   // of SessionsEnded
	asked    func(i int, ended bool) // before the answer about a session
	closed   func(*provingSession)
	asks     atomic.Int64
}

// A provingSession ends when it is closed or cut.
type provingSession struct {
	store *proving
	proof string
	name  string
	ended bool
	lost  chan struct{}
}

func provingStore() *proving { return &proving{sharing: sharing{new(memory.Store)}} }

func (p *proving) OpenSession(_ context.Context, name string, silence time.Duration) (storage.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.none || p.refuses != nil {
		return nil, p.refuses
	}
	if silence < 30*time.Second {
		return nil, fmt.Errorf("a session may be ended after a silence of %v, want two TTLs", silence)
	}
	s := &provingSession{store: p, proof: fmt.Sprint(len(p.sessions)), name: name, lost: make(chan struct{})}
	p.sessions = append(p.sessions, s)
	return s, nil
}

func (p *proving) SessionsEnded(_ context.Context, proofs []string) (all []bool, _ error) {
	p.asks.Add(1)
	for _, proof := range proofs {
		p.mu.Lock()
		var i int
		fmt.Sscan(proof, &i)
		ended, asked, silent := p.sessions[i].ended, p.asked, p.silent
		p.mu.Unlock()
		if silent != nil {
			return nil, silent
		}
		if asked != nil {
			asked(i, ended)
		}
		all = append(all, ended)
	}
	return all, nil
}

// set changes p.
func (p *proving) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// session returns session i, and how many there were.
func (p *proving) session(i int) (*provingSession, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[i], len(p.sessions)
}

func (s *provingSession) Proof() string         { return s.proof }
func (s *provingSession) Lost() <-chan struct{} { return s.lost }

func (s *provingSession) Close() {
	var closed func(*provingSession)
	s.store.set(func() { closed = s.store.closed })
	if closed != nil {
		closed(s)
	}
	s.end()
}

func (s *provingSession) end() { s.store.set(func() { s.ended = true }) }

// cut ends the session of an engine that lives.
func (s *provingSession) cut() {
	s.end()
	close(s.lost)
}

// unending is a workflow whose activity does not come to an end, and the number of its attempts.
func unending() (*engine.Workflow[string, string], *atomic.Int32) {
	began := new(atomic.Int32)
	act := &activity.Activity[string, string]{Name: "unending", Timeout: 24 * time.Hour, Run: func(ctx context.Context, s string) (string, error) {
		began.Add(1)
		<-ctx.Done()
		return "", context.Cause(ctx)
	}}
	return flow("unending", func(run *engine.Run) (string, error) { return act.Do(run, "") }), began
}

// successor waits until an attempt is repeated, and returns how long that took.
func successor(began *atomic.Int32) time.Duration {
	from, n := time.Now(), began.Load()
	for began.Load() == n && time.Since(from) < time.Hour {
		time.Sleep(time.Millisecond)
	}
	return time.Since(from)
}

// The work of the only engine goes on within a second of its next start, after two looks at its
// session. Among several engines it takes a poll more.
func TestDeathIsProven(t *testing.T) {
	t.Run("the only engine", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			s := provingStore()
			wf, began := unending()
			a := boot(t, s, wf)
			start(t, wf, a, "1", "")
			time.Sleep(time.Minute)
			a.kill()
			boot(t, s, wf)
			if took := successor(began); took < 290*time.Millisecond || took > time.Second {
				t.Errorf("the work goes on after %v, want 300ms to 1s", took) // boot took some of it
			}
		})
	})
	t.Run("the store notices the end late", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			s := provingStore()
			wf, began := unending()
			a := boot(t, s, wf)
			start(t, wf, a, "1", "")
			time.Sleep(time.Minute)
			a.store.Crash() // its session lasts
			boot(t, s, wf)
			time.Sleep(500 * time.Millisecond)
			first, _ := s.session(0)
			first.end()
			if took := successor(began); took > 700*time.Millisecond {
				t.Errorf("the work goes on after %v, want two looks", took)
			}
		})
	})
	t.Run("one of two", func(t *testing.T) {
		virtual(t, func(t *testing.T) {
			s := provingStore()
			wf, began := unending()
			a := boot(t, s, wf)
			boot(t, s, wf)
			start(t, wf, a, "1", "")
			time.Sleep(time.Minute)
			if n := began.Load(); n != 1 {
				t.Fatalf("got %d attempts while both engines live, want 1", n)
			}
			a.kill()
			if took := successor(began); took > 2*time.Second {
				t.Errorf("the work goes on after %v, want a poll and two looks", took)
			}
		})
	})
}

// Without a session that proves something, the lease decides.
func TestWithoutAProofTheLeaseDecides(t *testing.T) {
	for name, change := range map[string]func(s *proving){
		"no sessions":          func(s *proving) { s.none = true },
		"no session is opened": func(s *proving) { s.refuses = errBroke },
		"no answer about them": func(s *proving) { s.silent = errBroke },
		"the session lasts":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := provingStore()
				wf, began := unending()
				if change != nil {
					change(s)
				}
				a := boot(t, s, wf)
				start(t, wf, a, "1", "")
				time.Sleep(time.Minute + time.Millisecond) // behind the renewal of then
				if change != nil {
					a.kill()
				} else {
					a.store.Crash()
				}
				boot(t, s, wf)
				if took := successor(began); took < 14*time.Second || took > 17*time.Second {
					t.Errorf("the work goes on after %v, want a TTL of 15s", took)
				}
			})
		})
	}
}

// An engine that lives and loses its session keeps its runs: it withdraws the proof at once. Later it
// has another session.
func TestLostSessionOfALivingEngine(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := provingStore()
		wf, began := unending()
		a := boot(t, s, wf)
		boot(t, s, wf)
		start(t, wf, a, "1", "")
		for range 3 { // the sessions 0, 2 and 3 are of a
			time.Sleep(time.Minute)
			_, n := s.session(0)
			of := 0
			if n > 2 {
				of = n - 1
			}
			mine, _ := s.session(of)
			mine.cut()
			time.Sleep(5 * time.Minute)
			if _, m := s.session(0); m != n+1 {
				t.Fatalf("got %d sessions after %d, want one more", m, n)
			}
		}
		if n := began.Load(); n != 1 {
			t.Errorf("got %d attempts of an engine that lives, want 1", n)
		}
		a.kill()
		if took := successor(began); took > 2*time.Second {
			t.Errorf("after a death with another session the work goes on after %v, want it proven", took)
		}
	})
}

// The record counts, and not the session: an engine that withdraws the proof just after the second
// look is not declared dead.
func TestProofThatIsWithdrawnMeanwhile(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := provingStore()
		wf, began := unending()
		a := boot(t, s, wf)
		start(t, wf, a, "1", "")
		time.Sleep(time.Minute)
		first, _ := s.session(0)
		var looks atomic.Int32
		s.set(func() {
			s.asked = func(i int, ended bool) {
				if i != 0 || !ended {
					return
				}
				if looks.Add(1) == 2 {
					close(first.lost)
					time.Sleep(time.Millisecond) // the engine renews its record
				}
			}
		})
		first.end() // and the engine does not know yet
		boot(t, s, wf)
		time.Sleep(10 * time.Minute)
		if n := began.Load(); n != 1 || looks.Load() != 2 {
			t.Errorf("got %d attempts after %d looks, want 1 and 2", n, looks.Load())
		}
	})
}

// One look at a session that has ended is not enough.
func TestOneLookIsNotEnough(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := provingStore()
		wf, began := unending()
		a := boot(t, s, wf)
		start(t, wf, a, "1", "")
		time.Sleep(time.Minute)
		first, _ := s.session(0)
		var looks atomic.Int32
		s.set(func() {
			s.asked = func(i int, ended bool) {
				if i == 0 && ended {
					looks.Add(1)
					s.set(func() { first.ended = false })
				}
			}
		})
		boot(t, s, wf)
		for range 20 {
			first.end()
			time.Sleep(time.Minute)
		}
		if n := began.Load(); n != 1 || looks.Load() != 20 {
			t.Errorf("got %d attempts after %d looks that found the session ended, want 1 and 20", n, looks.Load())
		}
	})
}

// An engine ends its session after it has deregistered, when its attempts have ended.
func TestSessionEndsLast(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := provingStore()
		wf, began := unending()
		a := boot(t, s, wf)
		start(t, wf, a, "1", "")
		time.Sleep(time.Minute)
		var closed atomic.Int32
		s.set(func() {
			s.closed = func(x *provingSession) {
				closed.Add(1)
				key := keys.Engine(x.name)
				r, err := membership.OpenRegistration(key, get(t, s, key))
				if err != nil || r.Stopped == 0 {
					t.Errorf("the session ends before its engine has deregistered: %+v, %v", r, err)
				}
			}
		})
		a.stop(t)
		if n := closed.Load(); n != 1 {
			t.Errorf("the session was closed %d times, want once", n)
		}
		s.set(func() { s.closed = nil })
		boot(t, s, wf)
		time.Sleep(time.Second)
		if n := began.Load(); n != 2 {
			t.Errorf("got %d attempts, want one by each engine", n)
		}
	})
}

// An engine that is alone asks for no sessions, and others ask once in a poll, for all together.
func TestLooksAtSessionsAreFew(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := provingStore()
		wf, _ := unending()
		boot(t, s, wf)
		time.Sleep(time.Minute)
		if n := s.asks.Load(); n != 0 {
			t.Errorf("an engine that is alone asked %d times, want none", n)
		}
		boot(t, s, wf)
		boot(t, s, wf)
		time.Sleep(time.Minute)
		before := s.asks.Load()
		time.Sleep(100 * time.Second)
		if n := s.asks.Load() - before; n < 295 || n > 305 {
			t.Errorf("three engines asked %d times in 100 polls, want once each", n)
		}
	})
}

// A process on PostgreSQL that is killed is succeeded, although its lease lasts for an hour. Nothing
// is repeated that must not be.
func TestKilledOnPostgresIsSucceededBeforeItsLease(t *testing.T) {
	torture.Slow(t)
	for _, window := range []string{"W1", "W2", "W4"} {
		t.Run(window, func(t *testing.T) {
			k := &killing{store: "postgres", window: window, answer: "not completed", lease: time.Hour}
			k.play(t, pgtest.URL(t))
		})
	}
}

// The server ends the session of an engine that lives, alone or with all of its connections. The
// engine withdraws the proof, keeps its runs and has another session later. On a machine that stands
// still it may be too late, and is succeeded. That is played again.
func TestSessionIsCutByTheServer(t *testing.T) {
	torture.Slow(t)
	for name, which := range map[string]string{"alone": `'weft engine a-%'`, "with all connections": `'%a-%'`} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.URL(t)
			wf, _ := unending()
			options := func(name string, poll time.Duration) func(c *engine.Config) {
				return func(c *engine.Config) { c.Name, c.LeaseTTL, c.PollInterval = name, 2*time.Second, poll }
			}
			open := func(name string) *postgres.Store {
				s, err := postgres.Open(ctx, url+"&application_name="+name+"-", nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			}
			s := open("a")
			a := boot(t, s, wf, options("a", 50*time.Millisecond))
			boot(t, open("b"), wf, options("b", time.Second)) // it does not look at once: a has time to withdraw the proof
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(ctx)
			kept, runs := 0, 0
			for round := 0; round < 10 && kept < 2; round++ {
				var id, before, proof string
				within(t, "a drives what it starts", func() bool {
					if !engine.IsOpen(a.Engine) { // it was succeeded, and begins anew
						return false
					}
					id = fmt.Sprint(runs)
					runs++
					start(t, wf, a, id, "")
					if before = describe(t, a, id).Owner; !strings.HasPrefix(before, "a-") {
						return false
					}
					proof = published(t, s, before, "")
					return proof != ""
				})
				if _, err := conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE `+which); err != nil {
					t.Fatal(err)
				}
				for end := time.Now().Add(time.Minute); describe(t, a, id).Owner == before; time.Sleep(10 * time.Millisecond) {
					if p := published(t, s, before, proof); p != "" && p != proof {
						kept++
						break
					}
					if time.Now().After(end) {
						t.Fatal("the engine has no other session after a minute")
					}
				}
			}
			if kept < 2 {
				t.Errorf("the engine kept its runs in %d of 10 rounds, want two", kept)
			}
		})
	}
}

// published returns the proof in the record of an engine, or other if there is none.
func published(t *testing.T, s storage.Storage, incarnation, other string) string {
	t.Helper()
	key := keys.Engine(incarnation)
	r, err := membership.OpenRegistration(key, get(t, s, key))
	if err != nil {
		t.Fatal(err)
	}
	return cmp.Or(r.Session, other)
}
