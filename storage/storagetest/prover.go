package storagetest

import (
	"slices"
	"time"

	"github.com/weft-go/weft/storage"
)

func sessionIsProven(t *trial) {
	p, ok := storage.As[storage.Prover](t.store)
	if !ok {
		t.Skip("the store is not a storage.Prover")
	}
	var sessions []storage.Session
	var proofs []string
	for range 3 {
		s, err := p.OpenSession(t.Context(), "name", time.Minute)
		if err != nil {
			t.Fatalf("OpenSession: got error %v, want nil", err)
		}
		if s == nil {
			t.Skip("sessions of this store prove nothing")
		}
		defer s.Close()
		if s.Proof() == "" || slices.Contains(proofs, s.Proof()) {
			t.Errorf("Proof: got %q after %q, want one that is unique", s.Proof(), proofs)
		}
		sessions, proofs = append(sessions, s), append(proofs, s.Proof())
	}
	ended := func(by storage.Prover) []bool {
		got, err := by.SessionsEnded(t.Context(), slices.Concat(proofs, []string{"", "another kind of proof"}))
		if err != nil || len(got) != len(proofs)+2 {
			t.Fatalf("SessionsEnded of %d proofs: got %v and error %v", len(proofs)+2, got, err)
		}
		return got
	}
	if got := ended(p); slices.Contains(got, true) {
		t.Errorf("SessionsEnded of three that last and two that are not known: got %v, want none", got)
	}
	sessions[1].Close()
	sessions[1].Close()
	want := []bool{false, true, false, false, false}
	got := ended(p)
	for end := time.Now().Add(time.Minute); slices.Equal(got, make([]bool, 5)) && time.Now().Before(end); got = ended(p) {
		time.Sleep(10 * time.Millisecond) // the store may notice it late
	}
	if !slices.Equal(got, want) {
		t.Errorf("SessionsEnded after the second was closed: got %v, want %v", got, want)
	}
	if t.adapter.Reopen == nil {
		return
	}
	t.reopen()
	if p, ok = storage.As[storage.Prover](t.store); !ok {
		t.Fatalf("the store opened again is no storage.Prover, want one")
	}
	if got := ended(p); !slices.Equal(got, want) {
		t.Errorf("SessionsEnded after the store was closed and opened again: got %v, want %v", got, want)
	}
}
