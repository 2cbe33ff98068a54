// Package w2 takes random numbers.
package w2

import (
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/mlkem"
	crypto "crypto/rand"
	"hash/maphash"
	"math/big"
	old "math/rand"
	"math/rand/v2"

	"github.com/weft-go/weft/engine"
)

func number(run *engine.Run) int {
	return rand.IntN(6) // want `rand.IntN in workflow code: a replay gets another value; use run.Random`
}

func generic(run *engine.Run) int64 {
	return rand.N(int64(6)) // want `rand.N in workflow code`
}

func shuffle(run *engine.Run, s []int) {
	rand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] }) // want `rand.Shuffle in workflow code`
}

func olds(run *engine.Run) float64 {
	old.Seed(1)          // want `rand.Seed in workflow code`
	return old.Float64() // want `rand.Float64 in workflow code`
}

func secret(run *engine.Run, b []byte) error {
	_, err := crypto.Read(b) // want `rand.Read in workflow code`
	return err
}

func text(run *engine.Run) string {
	return crypto.Text() // want `rand.Text in workflow code`
}

func reader(run *engine.Run) (*big.Int, error) {
	r := crypto.Reader                      // want `rand.Reader in workflow code`
	return crypto.Int(r, big.NewInt(1<<40)) // want `rand.Int in workflow code`
}

func hashed(run *engine.Run, s string) uint64 {
	return maphash.String(maphash.MakeSeed(), s) // want `maphash.String in workflow code`
}

func keys(run *engine.Run) error {
	_, _, err := ed25519.GenerateKey(nil) // want `ed25519.GenerateKey in workflow code`
	if err != nil {
		return err
	}
	if _, err := ecdh.X25519().GenerateKey(nil); err != nil { // want `ecdh.Curve.GenerateKey in workflow code`
		return err
	}
	_, err = mlkem.GenerateKey768() // want `mlkem.GenerateKey768 in workflow code`
	return err
}

func caller(run *engine.Run) string { return newID() }

func newID() string {
	return crypto.Text() // want `rand.Text in workflow code \(caller calls newID\)`
}

// All runs, and all replays, take their numbers from one generator.
var (
	dice  = rand.New(rand.NewPCG(1, 2))
	cards = struct{ old.Source }{}.Source
	coins rand.ChaCha8
)

func shared(run *engine.Run) int {
	return dice.IntN(6) // want `the generator dice in workflow code: all runs and replays take numbers from it, each gets others; use run.Random \(W2\)`
}

func sharedSource(run *engine.Run) int64 {
	return cards.Int63() // want `the generator cards in workflow code`
}

func sharedValue(run *engine.Run) uint64 { return toss() }

func toss() uint64 {
	return coins.Uint64() // want `the generator coins in workflow code \(sharedValue calls toss\)`
}
