package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/internal/integrity"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// A Stage runs something in successive incarnations of one process, on a store that outlives
// them, in virtual time.
type Stage struct {
	Store Store

	// Config is the configuration of the engines, without Storage. A PollInterval of
	// zero means Poll.
	Config engine.Config

	// Deploy, if it is not nil, is what engines execute from a time on, after the beginning of the first
	// incarnation: that incarnation stops which runs then.
	Deploy *Deploy

	// Decide decides on the fault of each of the engines' calls to their store.
	Decide func(storagetest.Call) storagetest.Fault

	// Begin is called when incarnation 1, 2, ... starts.
	Begin func(life int)

	// Crashed is called when the store has crashed, before virtual time advances. It may be
	// nil.
	Crashed func()

	// Before is called with the store, which is stamped, before an engine runs on it.
	// It may be nil.
	Before func(ctx context.Context, s storage.Storage)

	// Drive is the client. If it fails it is called again, up to Tries times in one
	// incarnation, and in the next incarnation after a crash.
	Drive func(ctx context.Context, eng *engine.Engine) error
	Tries int

	// After is called in the incarnation in which Drive succeeded.
	After func(ctx context.Context, eng *engine.Engine, s storage.Storage)

	// Closing checks the store at the end.
	Closing func(ctx context.Context, s storage.Storage)

	Check    bool          // check after each incarnation that the records of the store agree
	Lives    int           // maximum number of incarnations
	Patience time.Duration // time limit of an incarnation

	Problems []string

	began time.Time // the first incarnation
}

// A Deploy is a new release of the program that hosts the engines.
type Deploy struct {
	After     time.Duration
	Workflows []engine.Definition
}

// deploys returns the time until the new release is deployed, if it is not yet.
func (s *Stage) deploys() (left time.Duration, ahead bool) {
	if s.Deploy == nil {
		return 0, false
	}
	left = s.Deploy.After - time.Since(s.began)
	return left, left > 0
}

// A Store is the store to use. Reopen represents a restart of the process; nil means that a new
// storagetest.Faulty around the store is enough.
type Store struct {
	Open   func(t testing.TB) storage.Storage
	Reopen func(t testing.TB, s storage.Storage) storage.Storage
}

// Poll is the engines' PollInterval. It is long, so that the calls to the store are those of the
// scenario, and odd, so that it does not coincide with a scenario's timers.
const Poll = 6*time.Hour + 7*time.Minute + 13*time.Second

// Play runs the stage that set returns, in a synctest bubble, until Drive succeeds. It records
// in Problems what went wrong with the run itself. It returns the error of Drive in the last
// incarnation.
func Play(t *testing.T, set func(t testing.TB) *Stage) (err error) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		inner := s.Store.Open(t)
		defer func() { inner.Close() }()
		s.began = time.Now()
		if s.Deploy != nil {
			s.Lives++
		}
		for life := 1; life <= s.Lives; life++ {
			if life > 1 && s.Store.Reopen != nil {
				inner = s.Store.Reopen(t, inner)
			}
			s.Begin(life)
			var done bool
			done, err = s.live(t, inner)
			if s.Check { // also after a crash
				s.Problems = append(s.Problems, integrity.Check(t.Context(), inner, time.Time{})...)
			}
			if done {
				break
			}
			if err == nil && life == s.Lives {
				err = fmt.Errorf("not done after %d incarnations", life)
			}
		}
		s.Closing(t.Context(), inner)
	})
	return err
}

// live runs one incarnation of a process: an engine until Drive succeeds or the store crashes.
func (s *Stage) live(t *testing.T, inner storage.Storage) (done bool, err error) {
	var mu sync.Mutex
	decide := func(c storagetest.Call) storagetest.Fault {
		mu.Lock()
		defer mu.Unlock()
		return s.Decide(c)
	}
	f := storagetest.NewFaulty(inner, decide)
	eng, err := engine.New(s.config(opened(f, inner, decide)))
	if err != nil {
		return false, err
	}
	if s.Before != nil {
		s.Before(t.Context(), inner)
	}
	ctx, cancel := context.WithTimeout(t.Context(), s.Patience)
	if left, ahead := s.deploys(); ahead {
		defer time.AfterFunc(left, cancel).Stop()
	}
	content, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-content:
			return
		case <-f.Crashed():
			if s.Crashed != nil {
				s.Crashed()
			}
		case <-ctx.Done():
		}
		cancel()
		eng.Close() // its store ignores whatever it does
	}()
	ran := make(chan error, 1)
	go func() { ran <- eng.Run(ctx) }()

	defer func() { // also if Drive exits its goroutine
		close(content)
		<-watched
		dead := ctx.Err() != nil
		cancel()
		if e := <-ran; e != nil && !dead && !errors.Is(e, storagetest.ErrInjected) {
			s.problem("the engine ended: %v", e)
		}
		eng.Close()
		done = err == nil && !dead
	}()
	for range s.Tries { // as a client would
		err = s.Drive(ctx, eng)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err == nil {
		s.After(ctx, eng, inner)
	}
	return false, err
}

// opened returns the store of an incarnation, with transactions if inner has them.
func opened(f *storagetest.Faulty, inner storage.Storage, decide func(storagetest.Call) storagetest.Fault) storage.Storage {
	if t, ok := storage.As[storage.Transactor](inner); ok {
		return &transactor{Faulty: f, inner: t, decide: decide}
	}
	return f
}

// A transactor is a Faulty whose transactions have faults too: a call of Transact is one call.
type transactor struct {
	*storagetest.Faulty
	inner  storage.Transactor
	decide func(storagetest.Call) storagetest.Fault
}

func (t *transactor) Unwrap() storage.Storage { return t.Faulty }

func (t *transactor) Transact(ctx context.Context, f func(ctx context.Context) (storage.Batch, error)) error {
	if t.gone() {
		return storagetest.ErrCrashed
	}
	fault := t.decide(storagetest.Call{Method: "Transact"})
	switch fault {
	case storagetest.CrashBefore:
		t.Crash()
		return storagetest.ErrCrashed
	case storagetest.ErrorBefore:
		return storagetest.ErrInjected
	}
	err := t.inner.Transact(ctx, func(ctx context.Context) (storage.Batch, error) {
		b, err := f(ctx)
		if err == nil && fault == storagetest.CancelMiddle {
			err = fmt.Errorf("%w: the server went away", storage.ErrTransactionLost)
		}
		return b, err
	})
	switch {
	case fault == storagetest.CrashAfter:
		t.Crash()
		return storagetest.ErrCrashed
	case t.gone(): // another call has crashed the process meanwhile
		return storagetest.ErrCrashed
	case fault == storagetest.ErrorAfter:
		return storagetest.ErrInjected
	}
	return err
}

func (t *transactor) gone() bool {
	select {
	case <-t.Crashed():
		return true
	default:
		return false
	}
}

func (s *Stage) config(f storage.Storage) engine.Config {
	c := s.Config
	if _, ahead := s.deploys(); s.Deploy != nil && !ahead {
		c.Workflows = s.Deploy.Workflows
	}
	c.Storage = f
	c.Name = "sweep"
	c.PollInterval = cmp.Or(c.PollInterval, Poll)
	c.LeaseTTL = 3 * c.PollInterval
	c.SignalIDRetention = 365 * 24 * time.Hour // longer than a run: a client may send again at its end
	c.TombstoneRetention = 24 * time.Hour
	c.Logger = slog.New(slog.DiscardHandler)
	return c
}

func (s *Stage) problem(format string, args ...any) {
	s.Problems = append(s.Problems, fmt.Sprintf(format, args...))
}
