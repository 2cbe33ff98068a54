package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/storagetest"
)

// A Stage is where something is played: life after life of one process, on a
// store that outlives them, in virtual time.
type Stage struct {
	Store Store

	// Config is that of the engines, but for Storage. A PollInterval of zero is
	// Poll.
	Config engine.Config

	// Decide is put each call of the engines to their store.
	Decide func(storagetest.Call) storagetest.Fault

	// Begin is told when a life begins: 1, 2, ...
	Begin func(life int)

	// Before is called with the store, which is stamped, before an engine runs on it.
	// It may be nil.
	Before func(ctx context.Context, s storage.Storage)

	// Drive is the client. It is called again when it failed, up to Tries times
	// in a life, and in the next life after a crash.
	Drive func(ctx context.Context, eng *engine.Engine) error
	Tries int

	// After is called in the life in which Drive has succeeded.
	After func(ctx context.Context, eng *engine.Engine, s storage.Storage)

	// Closing looks at the store when everything is over.
	Closing func(ctx context.Context, s storage.Storage)

	Lives    int           // at most
	Patience time.Duration // that a life has

	Problems []string
}

// A Store is what is played on. Reopen stands for a restart of the process; nil
// means that a new storagetest.Faulty around it is enough.
type Store struct {
	Open   func(t testing.TB) storage.Storage
	Reopen func(t testing.TB, s storage.Storage) storage.Storage
}

// Poll is the engines' PollInterval: long, so that the calls of a play are those
// that do something, and odd, so that it does not meet the timers of a scenario.
const Poll = 6*time.Hour + 7*time.Minute + 13*time.Second

// Play plays on the stage that set makes, in its bubble, until the client is
// content. It notes in Problems what went wrong with the play itself. The error
// is the client's in its last life.
func Play(t *testing.T, set func(t testing.TB) *Stage) (err error) {
	synctest.Test(t, func(t *testing.T) {
		s := set(t)
		inner := s.Store.Open(t)
		defer func() { inner.Close() }()
		for life := 1; life <= s.Lives; life++ {
			if life > 1 && s.Store.Reopen != nil {
				inner = s.Store.Reopen(t, inner)
			}
			s.Begin(life)
			var done bool
			if done, err = s.live(t, inner); done {
				break
			}
			if err == nil && life == s.Lives {
				err = fmt.Errorf("not done after %d lives", life)
			}
		}
		s.Closing(t.Context(), inner)
	})
	return err
}

// live is one life of a process: an engine until the client is content or the
// store has crashed.
func (s *Stage) live(t *testing.T, inner storage.Storage) (done bool, err error) {
	f := storagetest.NewFaulty(inner, s.Decide)
	eng, err := engine.New(s.config(f))
	if err != nil {
		return false, err
	}
	if s.Before != nil {
		s.Before(t.Context(), inner)
	}
	ctx, cancel := context.WithTimeout(t.Context(), s.Patience)
	content, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-content:
			return
		case <-f.Crashed():
		case <-ctx.Done():
		}
		cancel()
		eng.Close() // whatever it does, its store does not hear it
	}()
	ran := make(chan error, 1)
	go func() { ran <- eng.Run(ctx) }()

	defer func() { // also if the client ends its goroutine
		close(content)
		<-watched
		dead := ctx.Err() != nil
		cancel()
		if e := <-ran; e != nil && !dead && !errors.Is(e, storagetest.ErrInjected) {
			s.problem("Run: %v", e)
		}
		eng.Close()
		done = err == nil && !dead
	}()
	for range s.Tries { // a client tries again
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

func (s *Stage) config(f *storagetest.Faulty) engine.Config {
	c := s.Config
	c.Storage = f
	c.Name = "sweep"
	c.PollInterval = cmp.Or(c.PollInterval, Poll)
	c.LeaseTTL = 3 * c.PollInterval
	c.SignalMemory = 365 * 24 * time.Hour // longer than a play: a client may send again at its end
	c.Logger = slog.New(slog.DiscardHandler)
	return c
}

func (s *Stage) problem(format string, args ...any) {
	s.Problems = append(s.Problems, fmt.Sprintf(format, args...))
}
