package acceptance

import (
	"context"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/digest"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var (
	ctx  = context.Background()
	noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
)

const generation = "GEN"

func incoming(name, id, data string) *Incoming {
	return &Incoming{
		WorkflowID: "order-42", Name: name, ID: id,
		Data: []byte(data), Digest: digest.Of([]byte(data)), Memory: 24 * time.Hour,
	}
}

// decide reads the counter and decides an acceptance.
func decide(t testing.TB, s storage.Storage, ins ...*Incoming) *Acceptance {
	t.Helper()
	counted, err := Counter(ctx, s, ins[0].WorkflowID)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Accept(ins, generation, counted, noon)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func accept(t testing.TB, s storage.Storage, in *Incoming) signal.Accepted {
	t.Helper()
	d := decide(t, s, in)
	if err := s.Commit(ctx, d.Batch); err != nil {
		t.Fatalf("accept %q: %v", in.ID, err)
	}
	return d.Arrived[0].Answer
}
