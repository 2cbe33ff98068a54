package w2

import (
	"context"
	"crypto/ed25519"
	crypto "crypto/rand"
	"crypto/sha256"
	"hash/fnv"
	"math"
	old "math/rand"
	"math/rand/v2"

	"github.com/weft-go/weft/engine"
)

func random(run *engine.Run) int { return run.Random().IntN(6) }

func shuffled(run *engine.Run, s []int) {
	run.Random().Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}

func seeded(run *engine.Run) uint64 { return rand.New(rand.NewPCG(1, 2)).Uint64() }

func seededBy(run *engine.Run, seed [32]byte) uint64 { return rand.NewChaCha8(seed).Uint64() }

func seededOld(run *engine.Run) int { return old.New(old.NewSource(7)).Int() }

func zipf(run *engine.Run) uint64 { return rand.NewZipf(run.Random(), 2, 1, 9).Uint64() }

func passed(run *engine.Run, r *rand.Rand) int { return r.IntN(6) }

func inStep(run *engine.Run) (string, error) {
	return engine.Step(run, "token", func(context.Context) (string, error) { return crypto.Text(), nil })
}

func digest(run *engine.Run, b []byte) [32]byte { return sha256.Sum256(b) }

func signed(run *engine.Run, seed, b []byte) []byte {
	return ed25519.Sign(ed25519.NewKeyFromSeed(seed), b)
}

func hash(run *engine.Run, s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}

func id(run *engine.Run) string { return run.ID() + "/1" }

func client() int { return rand.IntN(6) + old.Int() }

func maths(run *engine.Run, x float64) float64 { return math.Floor(x) }

// The numbers are taken before the program begins.
var (
	fixed = rand.New(rand.NewPCG(3, 4))
	first = fixed.IntN(6)
)

func takenBefore(run *engine.Run) int { return first }

func drawnInStep(run *engine.Run) (int, error) {
	return engine.Step(run, "draw", func(context.Context) (int, error) { return fixed.IntN(6), nil })
}
