package engine

import (
	"context"
	"time"

	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/run"
)

// SetNow gives e another wall clock. It must be called before e is used.
func SetNow(e *Engine, now func() time.Time) {
	e.worker.Now = now
	e.worker.Read = func() journal.Reading {
		return journal.Reading{Wall: now().Round(0), Mono: time.Now()}
	}
}

// IsOpen says that e drives what is started.
func IsOpen(e *Engine) bool { return e.worker.IsOpen() }

// SetIDs has e take its ULIDs from newID. It must be called before e is used.
func SetIDs(e *Engine, newID func() string) { e.worker.NewID = newID }

// SetBase has what e does of its own accord do so under ctx. It must be called before e
// is used.
func SetBase(e *Engine, ctx context.Context) { e.worker.Base = ctx }

// SetBulks has the pages of bulks that e carries out be small, and e wait for a short time after an error of the store. It
// must be called before e is used.
func SetBulks(e *Engine, page int, pause time.Duration) {
	e.bulks.MostPage, e.bulks.Pause = page, pause
}

// SetStreams has e look for chunks of streams by itself after that pause. It must be called before e is used.
func SetStreams(e *Engine, pause time.Duration) { e.reader.Streams.Pause = pause }

// TurnIsLate has e renew its lease as when a goroutine has waited long for its turn.
func TurnIsLate(e *Engine) { e.worker.HurryUp() }

// Every decision of every test is made twice, and the second time it is the same.
func init() {
	run.DecideTwice()
	run.PanicAtDefects()
}
