package engine_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// BenchmarkReplayWithVersions replays a history of 10,000 steps, in turn without and with a call of
// Run.Version before each step. It reports how much longer the latter takes, and how many more
// checkpoints its run has.
func BenchmarkReplayWithVersions(b *testing.B) {
	const steps = 10_000
	build := func(asks bool) *engine.Workflow[string, string] {
		wf := flow("steps", func(run *engine.Run) (string, error) {
			for range steps {
				if asks && run.Version("change") != 1 {
					return "", errBroke
				}
				if _, err := engine.Step(run, "step", func(context.Context) (int, error) { return 1, nil }); err != nil {
					return "", err
				}
			}
			return "", nil
		})
		if asks {
			wf.Versions = map[string]int{"change": 1}
		}
		return wf
	}
	var histories [2][]byte
	var checkpoints [2]int
	var engines [2]*engine.Engine
	for i, wf := range []*engine.Workflow[string, string]{build(false), build(true)} {
		p := boot(b, new(memory.Store), wf)
		if _, err := start(b, wf, p, "o", "").Result(ctx); err != nil {
			b.Fatal(err)
		}
		var exported bytes.Buffer
		if err := p.Export(ctx, "o", &exported); err != nil {
			b.Fatal(err)
		}
		histories[i], checkpoints[i] = exported.Bytes(), len(historyOf(b, p.Engine, "o"))
		engines[i] = p.Engine
	}
	var took [2]time.Duration
	for b.Loop() {
		for i, e := range engines {
			began := time.Now()
			if err := e.Replay(ctx, bytes.NewReader(histories[i])); err != nil {
				b.Fatal(err)
			}
			took[i] += time.Since(began)
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "with/without")
	b.ReportMetric(float64(checkpoints[1]-checkpoints[0]), "checkpoints-more")
}
