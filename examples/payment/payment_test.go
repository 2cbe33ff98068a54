package main

import (
	"cmp"
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/torture"
)

// TestMain makes the test program its own child.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// ACT-33, ACT-38, ACT-50, ACT-51, ACT-55: whenever the shop dies and whatever reply is
// lost, each card is charged once, and the bank knows of every payment. ACT-10: a
// charge for goods that are sold out is refunded before the workflow ends, and no other
// charge is. WEFT_KILLS kills per store; WEFT_SEED repeats the moments.
func TestEveryCardIsChargedOnce(t *testing.T) {
	torture.Slow(t)
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("WEFT_KILLS"), "10"))
	if err != nil {
		t.Fatal("WEFT_KILLS:", err)
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("WEFT_SEED"), strconv.FormatUint(rand.Uint64(), 10)), 10, 64)
	if err != nil {
		t.Fatal("WEFT_SEED:", err)
	}
	for _, store := range []string{"sqlite", "postgres"} {
		t.Run(store, func(t *testing.T) {
			o := options{kills: kills, lose: 0.2, store: store, seed: seed, clients: 8, span: 300 * time.Millisecond, dir: t.TempDir()}
			if err := run(context.Background(), o, t.Output()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
