package signal

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weft-go/weft/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ctx  = context.Background()
	noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
)

func incoming(name, id, data string) *Incoming {
	return &Incoming{
		WorkflowID: "order-42", Generation: "GEN", Name: name, ID: id,
		Data: []byte(data), Digest: []byte("digest of " + data), At: noon, ExpiresAt: noon.Add(24 * time.Hour),
	}
}

// decide reads the counter and decides an acceptance.
func decide(t testing.TB, s storage.Storage, in *Incoming) (storage.Batch, Accepted) {
	t.Helper()
	counted, err := Counter(ctx, s, in.WorkflowID)
	if err != nil {
		t.Fatal(err)
	}
	b, a, err := Accept(in, counted)
	if err != nil {
		t.Fatal(err)
	}
	return b, a
}

func accept(t testing.TB, s storage.Storage, in *Incoming) Accepted {
	t.Helper()
	b, a := decide(t, s, in)
	if err := s.Commit(ctx, b); err != nil {
		t.Fatalf("accept %q: %v", in.ID, err)
	}
	return a
}
