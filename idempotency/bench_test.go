package idempotency_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage/memory"
)

func BenchmarkDo(b *testing.B) {
	type request struct {
		Payment, Note string
		Cents         int
	}
	in := request{"p", strings.Repeat("n", 950), 100}
	e := &idempotency.Effect[request, string]{Name: "refund", Run: func(context.Context, request) (string, error) { return "done", nil }}
	k := func(i int) idempotency.Key {
		return idempotency.Key{Tenant: "shop", SourceType: "request", SourceID: fmt.Sprintf("r-%012d", i)}
	}
	for _, c := range []struct {
		name string
		of   func(i int) idempotency.Key
	}{
		{"new", k},
		{"duplicate", func(int) idempotency.Key { return k(0) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := ledger(b, new(memory.Store))
			if _, err := e.Do(b.Context(), l, k(0), in); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := 1; b.Loop(); i++ {
				if _, err := e.Do(b.Context(), l, c.of(i), in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
