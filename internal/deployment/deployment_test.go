package deployment_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft/internal/deployment"
	"github.com/weft-go/weft/internal/golden"
	"github.com/weft-go/weft/internal/journal"
	"github.com/weft-go/weft/internal/keys"
	"github.com/weft-go/weft/internal/record"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func green() *deployment.Record {
	return &deployment.Record{
		ID:        "green_1",
		Manifest:  []byte(`{"id":"green_1"}`),
		Digest:    []byte{1, 2, 3},
		Artifact:  &deployment.Artifact{SHA256: []byte{4, 5, 6}, Size: 1 << 20, Path: "build/app.tar"},
		CreatedAt: journal.Micro(noon), CreatedBy: "ann",
	}
}

// HTTP-35: the bytes of the record of a deployment.
func TestGoldenRecordsOfDeployments(t *testing.T) {
	active := green()
	active.ActivatedAt = journal.Micro(noon.Add(time.Hour))
	r := func(d *deployment.Record) golden.Record {
		return golden.Record{Key: keys.Deployment(d.ID), Version: deployment.Version, Value: d, Empty: func() any { return new(deployment.Record) }}
	}
	golden.Check(t, "testdata/v1", map[string]golden.Record{"created": r(green()), "activated": r(active)})
}

// HTTP-37: the ids that a deployment can have.
func TestIDsOfDeployments(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "2026-01-02_b": true, strings.Repeat("x", 100): true, "Active": true,
		"": false, strings.Repeat("x", 101): false, "active": false,
		"a/b": false, "..": false, "a.b": false, "ä": false, "a b": false, "a\n": false, "a%2Fb": false,
	} {
		if got := deployment.ValidID(id); got != want {
			t.Errorf("%q: got %v, want %v", id, got, want)
		}
	}
}

// A record is created once, read as it was written, and listed in the order of ids.
func TestRecordsAreCreatedAndListed(t *testing.T) {
	s := new(memory.Store)
	if _, err := deployment.Load(t.Context(), s, "green_1"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("before: got %v, want ErrNotFound", err)
	}
	for _, id := range []string{"green_1", "blue"} {
		d := green()
		d.ID = id
		commit(t, s, nil)(d.Create())
	}
	commit(t, s, storage.ErrConflict)(green().Create())
	d, err := deployment.Load(t.Context(), s, "green_1")
	if err != nil || string(d.Manifest) != `{"id":"green_1"}` || d.Artifact.Path != "build/app.tar" || d.CreatedBy != "ann" || d.ActivatedAt != 0 {
		t.Errorf("got %+v, %v", d, err)
	}
	var ids []string
	for e, err := range storage.All(t.Context(), s, deployment.Range("")) {
		if err != nil {
			t.Fatal(err)
		}
		d, err := deployment.Open(e)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, d.ID)
	}
	if got := strings.Join(ids, " "); got != "blue green_1" {
		t.Errorf("listed %q", got)
	}
	if page, err := s.Scan(t.Context(), deployment.Range("blue")); err != nil || len(page) != 1 {
		t.Errorf("behind blue: %d, %v, want 1", len(page), err)
	}
}

// An activation is noted in the record as it is when the batch is committed. It is noted nowhere
// if there is no record, and a damaged one does not prevent it.
func TestActivationIsNoted(t *testing.T) {
	s := new(memory.Store)
	none, err := deployment.Activated(t.Context(), s, "green_1", noon)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, nil)(green().Create())
	commit(t, s, storage.ErrConflict)(none, nil) // there is a record by now

	now, err := deployment.Activated(t.Context(), s, "green_1", noon)
	commit(t, s, nil)(now, err)
	commit(t, s, storage.ErrConflict)(now, nil) // it was changed
	if d, err := deployment.Load(t.Context(), s, "green_1"); err != nil || d.ActivatedAt != journal.Micro(noon) || d.CreatedBy != "ann" {
		t.Errorf("got %+v, %v", d, err)
	}

	key := keys.Deployment("green_1")
	commit(t, s, nil)(storage.Batch{Ops: []storage.Op{storage.Put(key, []byte("damaged"))}}, nil)
	if _, err := deployment.Load(t.Context(), s, "green_1"); !record.Damaged(err) {
		t.Errorf("damaged: got %v", err)
	}
	if b, err := deployment.Activated(t.Context(), s, "green_1", noon); err != nil || len(b.If)+len(b.Ops) > 0 {
		t.Errorf("damaged: got %v, %v, want nothing", b, err)
	}
}

// What a later release has added to a record is kept.
func TestUnknownFieldsOfADeploymentAreKept(t *testing.T) {
	s, key := new(memory.Store), keys.Deployment("green_1")
	commit(t, s, nil)(green().Create())
	raw, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	later, err := golden.Later(key, raw, deployment.Version, "later")
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, nil)(storage.Batch{Ops: []storage.Op{storage.Put(key, later)}}, nil)
	b, err := deployment.Activated(t.Context(), s, "green_1", noon)
	commit(t, s, nil)(b, err)
	is, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if lost, err := golden.Kept(key, later, is, deployment.Version); err != nil || lost != "" {
		t.Errorf("lost: %s, %v", lost, err)
	}
}

func commit(t *testing.T, s storage.Storage, want error) func(b storage.Batch, err error) {
	t.Helper()
	return func(b storage.Batch, err error) {
		t.Helper()
		if err == nil {
			err = s.Commit(context.Background(), b)
		}
		if !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
	}
}
