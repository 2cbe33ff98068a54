package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/idempotency/internal/clock"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

const ttl = 3 * time.Second

// opens returns the Holders of a process, and a function that ends the process without retiring its holder.
func opens(t *testing.T, s storage.Storage, opening string) (hs *Holders, end func()) {
	life, cancel := context.WithCancel(t.Context())
	var background sync.WaitGroup
	end = func() {
		cancel()
		background.Wait()
	}
	t.Cleanup(end)
	return New(Config{
		Store: s, Opening: opening, TTL: ttl, Clock: &clock.Clock{Wall: time.Now}, NewID: rand.Text,
		Logger: slog.New(slog.DiscardHandler), Life: life, Go: background.Go,
	}), end
}

func owns(t *testing.T, hs *Holders) *Holder {
	t.Helper()
	h, err := hs.Own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Section 8: no growth: a ledger does not remember holders that are gone.
func TestHoldersThatAreGoneAreNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memory.Store)
		hs, _ := opens(t, s, "")
		observes := func(minutes int) {
			for range minutes {
				time.Sleep(time.Minute)
				if _, err := hs.ObserveAll(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 10 {
			other, end := opens(t, s, "")
			owns(t, other)
			observes(2)
			if len(hs.sightings) != 1 {
				t.Fatalf("%d leases were seen, want 1", len(hs.sightings))
			}
			end()
			other.Retire(t.Context())
		}
		other, end := opens(t, s, "")
		owns(t, other)
		end()
		observes(5)
		if len(hs.sightings) > 0 || len(hs.dead) != 1 {
			t.Errorf("remembers %d leases and %d dead holders", len(hs.sightings), len(hs.dead))
		}
		observes(25 * 60)
		if len(hs.dead) > 0 {
			t.Errorf("remembers %d dead holders after a day", len(hs.dead))
		}
	})
}

// Section 3: on an exclusive store, two callers who find the same holder dead at once both go on.
func TestDeadHolderIsBuriedTwice(t *testing.T) {
	hs, _ := opens(t, new(memory.Store), "alone")
	for name, opening := range map[string]string{"closed": "alone", "before": "another"} {
		key := keys.Holder(name)
		raw, err := record.Seal(key, version, &Lease{Opening: opening, Nonce: "n"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second finds it removed after it was read
			if since, err := hs.observe(t.Context(), name, key, raw, false); err != nil || since.IsZero() {
				t.Errorf("%s: %v, %v", name, since, err)
			}
		}
	}
}

// A lease that the store does not remove is no damaged one: who judges all of them is told.
func TestStoreThatDoesNotBury(t *testing.T) {
	s := new(memory.Store)
	before, end := opens(t, s, "before")
	owns(t, before)
	end()
	hs, _ := opens(t, storagetest.NewFaulty(s, func(c storagetest.Call) storagetest.Fault {
		if c.Method == "Commit" {
			return storagetest.ErrorBefore
		}
		return storagetest.None
	}), "alone")
	if _, err := hs.ObserveAll(t.Context()); !errors.Is(err, storagetest.ErrInjected) {
		t.Errorf("ObserveAll: %v, want the store's error", err)
	}
}

// Section 3: on an exclusive store, another ledger of the process does not take a holder for dead that is just being
// registered.
func TestHolderIsPresentBeforeItIsStored(t *testing.T) {
	registered := 0
	hs, _ := opens(t, storagetest.NewFaulty(new(memory.Store), func(c storagetest.Call) storagetest.Fault {
		if c.Method == "Commit" && c.Batch.Ops[0].Kind == storage.PutOp {
			if id, err := keys.Last(c.Batch.Ops[0].Key); err == nil {
				registered++
				if _, ok := present.Load(id); !ok {
					t.Error("it is stored before it is present")
				}
			}
		}
		return storagetest.None
	}), "alone")
	owns(t, hs)
	if registered == 0 {
		t.Error("no holder was registered")
	}
}

// A slowStore applies renewals and answers them late, and then takes none any more.
type slowStore struct {
	storage.Storage
	late time.Duration
	cut  bool
}

func (s *slowStore) Commit(ctx context.Context, b storage.Batch) error {
	if len(b.If) == 0 || b.If[0].Kind != storage.IsEqual || !strings.HasPrefix(string(b.If[0].Key), "idemown:") {
		return s.Storage.Commit(ctx, b)
	}
	if s.cut {
		return storagetest.ErrInjected
	}
	s.cut = true
	err := s.Storage.Commit(ctx, b)
	time.Sleep(s.late)
	return err
}

// FEN-11, section 3: a holder trusts its lease for a Lease from when the last renewal that was stored left, however late
// the answer came. So whoever finds it dead finds it after it knows that itself.
func TestLeaseIsTrustedFromWhenItLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memory.Store)
		hs, _ := opens(t, &slowStore{Storage: s, late: 2 * time.Second}, "")
		h := owns(t, hs)
		other, _ := opens(t, s, "")
		begun := time.Now()
		for ; ; time.Sleep(10 * time.Millisecond) {
			dead, err := other.Death(t.Context(), h.ID, "", false)
			if err != nil {
				t.Fatal(err)
			}
			if !dead.IsZero() {
				break
			}
			if time.Since(begun) > time.Minute {
				t.Fatal("it is never found dead")
			}
		}
		synctest.Wait() // for the timers of this very moment
		if !h.IsLost() {
			t.Errorf("it is found dead at %v, and trusts its lease", time.Since(begun))
		}
	})
}

// HTTP-51: the bytes of leases.
func TestGoldenRecords(t *testing.T) {
	held := func(l Lease) golden.Record {
		return golden.Record{Key: keys.Holder("01JGZ3Q8X0000000000000000B"), Version: version, Value: &l, Empty: func() any { return new(Lease) }}
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{
		"lease":       held(Lease{Nonce: "NONCE", TTL: 30000000, Clock: 1767355200000000}),
		"lease-alone": held(Lease{Opening: "OPENING", Nonce: "NONCE", Clock: 1767355200000000}),
	})
}

// FuzzLease: any bytes under the key of a lease, even with a right checksum, are a lease or an error that says that they
// are damaged.
func FuzzLease(f *testing.F) {
	f.Add([]byte("\xa2\x02aN\x04\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		key := []byte("idemown:h")
		if _, err := Open(key, golden.Envelope(key, version, body)); err != nil && !record.Damaged(err) {
			t.Errorf("got %v, want an error about the record", err)
		}
	})
}
