package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
)

// A versioned request type: as it was, and as later releases of the program have it.
type (
	orderV1 struct {
		Item  string
		Count int
	}
	orderV2 struct {
		Item  string
		Count int
		Gift  bool
		Notes []string
		Where struct{ City string }
	}
)

func ordering[In any](runs *int) *idempotency.Effect[In, string] {
	return &idempotency.Effect[In, string]{Name: "order", Run: func(context.Context, In) (string, error) { *runs++; return "done", nil }}
}

// FEN-16, section 3: the stored request is decoded by today's code: a field added since makes no other request, unless it is set; and
// what differs in the old fields is still a conflict.
func TestRequestTypeThatGainedFields(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		for _, codec := range []idempotency.Codec{nil, scrambler{"x", 9}} {
			l, runs := ledger(t, s, func(c *idempotency.Config) { c.Codec = codec }), 0
			k := key
			k.Revision = fmt.Sprint(codec)
			first, err := ordering[orderV1](&runs).Do(t.Context(), l, k, orderV1{"book", 2})
			must(t, err)
			v2 := ordering[orderV2](&runs)
			if r, err := v2.Do(t.Context(), l, k, orderV2{Item: "book", Count: 2}); err != nil || r.EffectID != first.EffectID || r.Decision != idempotency.DecidedDuplicate {
				t.Errorf("by the new code: %+v, %v", r, err)
			}
			for _, other := range []orderV2{{Item: "book", Count: 3}, {Item: "book", Count: 2, Gift: true}, {Item: "book", Count: 2, Notes: []string{}}} {
				if _, err := v2.Do(t.Context(), l, k, other); !errors.Is(err, idempotency.ErrConflict) {
					t.Errorf("%+v: %v", other, err)
				}
			}
			if runs != 1 {
				t.Errorf("%d runs", runs)
			}
		}
	})
}

// A field may be added in so many places, or so deep inside, that the diff of a conflict would not show it.
func TestRequestTypeThatGainedFieldsEverywhere(t *testing.T) {
	type (
		lineV1 struct {
			Item   string
			Bundle *lineV1
		}
		lineV2 struct {
			Item   string
			Bundle *lineV2
			Gift   bool
		}
	)
	var v1 lineV1
	var v2 lineV2
	for range 40 {
		in1, in2 := v1, v2
		v1, v2 = lineV1{Item: "book", Bundle: &in1}, lineV2{Item: "book", Bundle: &in2}
	}
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, runs := ledger(t, s), 0
		for i, r := range []struct {
			old []lineV1
			now []lineV2
		}{
			{slices.Repeat([]lineV1{{Item: "book"}}, 101), slices.Repeat([]lineV2{{Item: "book"}}, 101)},
			{[]lineV1{v1}, []lineV2{v2}},
		} {
			k := key
			k.Revision = fmt.Sprint(i)
			first, err := ordering[[]lineV1](&runs).Do(t.Context(), l, k, r.old)
			must(t, err)
			if again, err := ordering[[]lineV2](&runs).Do(t.Context(), l, k, r.now); err != nil || again.EffectID != first.EffectID {
				t.Errorf("%d: by the new code: %+v, %v", i, again, err)
			}
		}
		if runs != 2 {
			t.Errorf("%d runs", runs)
		}
	})
}

// Section 2, Fingerprint: what a duplicate must have equal; the rest may differ.
func TestFingerprint(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, g := ledger(t, s), new(target)
		e := g.effect()
		e.Fingerprint = func(r refund) any { return map[string]any{"payment": r.Payment} }
		if _, err := e.Do(t.Context(), l, key, refund{"p1", 1}); err != nil {
			t.Fatal(err)
		}
		if r, err := e.Do(t.Context(), l, key, refund{"p1", 2}); err != nil || r.Decision != idempotency.DecidedDuplicate {
			t.Errorf("equal: %+v, %v", r, err)
		}
		_, err := e.Do(t.Context(), l, key, refund{"p2", 1})
		var c *idempotency.ConflictError
		if !errors.As(err, &c) || len(c.Diff) != 1 || c.Diff[0].Path != "/payment" {
			t.Errorf("different: %v", err)
		}
		if stored := dump(t, s); strings.Contains(stored, "Cents") {
			t.Errorf("stored: %s", stored)
		}
		nothing := g.effect()
		nothing.Fingerprint = func(refund) any { return nil }
		k := key
		k.Revision = "nil"
		for i, want := range []idempotency.Decision{idempotency.DecidedNew, idempotency.DecidedDuplicate} {
			if r, err := nothing.Do(t.Context(), l, k, refund{"p", i}); err != nil || r.Decision != want {
				t.Errorf("nil: %+v, %v", r, err)
			}
		}
	})
}

// FEN-16, FEN-47, section 3: the first request is kept, to 64 KiB; the diff says where another differs, with values only if the Effect
// says so. A larger one is compared by its fingerprint.
func TestDiff(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, runs := ledger(t, s), 0
		type request struct {
			A, B int
			Text string
		}
		e := ordering[request](&runs)
		first, err := e.Do(t.Context(), l, key, request{1, 2, "x"})
		must(t, err)
		for _, values := range []bool{false, true} {
			e.DiffValues = values
			r, err := e.Do(t.Context(), l, key, request{1, 3, "y"})
			var c *idempotency.ConflictError
			if !errors.As(err, &c) || c.EffectID != first.EffectID || r.EffectID != first.EffectID || c.Truncated || c.DiffBytes == 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			var paths []string
			for _, d := range c.Diff {
				paths = append(paths, d.Op+" "+d.Path)
				if values != (d.Value != nil) {
					t.Errorf("values %v: %+v", values, d)
				}
			}
			slices.Sort(paths)
			if strings.Join(paths, " ") != "replace /B replace /Text" {
				t.Errorf("%v", paths)
			}
		}
		// At the limit of what is kept, and above. {"A":1,"B":2,"Text":"…"} has 23 bytes beside the text.
		for n, kept := range map[int]bool{64<<10 - 23: true, 64<<10 - 22: false} {
			k := key
			k.Revision = fmt.Sprint(n)
			large := request{1, 2, strings.Repeat("x", n)}
			if b, _ := json.Marshal(large); kept != (len(b) == 64<<10) {
				t.Fatalf("%d bytes", len(b))
			}
			if _, err := e.Do(t.Context(), l, k, large); err != nil {
				t.Fatal(err)
			}
			if r, err := e.Do(t.Context(), l, k, large); err != nil || r.Decision != idempotency.DecidedDuplicate {
				t.Errorf("again: %+v, %v", r, err)
			}
			large.B = 3
			_, err := e.Do(t.Context(), l, k, large)
			var c *idempotency.ConflictError
			if !errors.As(err, &c) || kept != (len(c.Diff) == 1) || c.EffectID == "" {
				t.Errorf("%d: %v", n, err)
			}
		}
		// 100 paths at most.
		many := ordering[map[string]int](&runs)
		k, a, b := key, map[string]int{}, map[string]int{}
		k.Revision = "many"
		for i := range 300 {
			a[fmt.Sprint(i)], b[fmt.Sprint(i)] = 1, 2
		}
		if _, err := many.Do(t.Context(), l, k, a); err != nil {
			t.Fatal(err)
		}
		_, err = many.Do(t.Context(), l, k, b)
		var c *idempotency.ConflictError
		if !errors.As(err, &c) || len(c.Diff) > 100 || len(c.Diff) == 0 || !c.Truncated {
			t.Errorf("many: %v", err)
		}
	})
}

// FEN-16: another request is a conflict in each state but none and released, and leaves the record as it is.
func TestConflictInEachState(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		for _, st := range []idempotency.State{idempotency.StateSealed, idempotency.StateFailed, idempotency.StateIndeterminate} {
			for _, policy := range []idempotency.Abandoned{idempotency.VerifyOrHold, idempotency.Hold, idempotency.TakeOver} {
				k := key
				k.Revision = string(st) + policy.String()
				brings(t, l, k, st)
				before, g := dump(t, s), new(target)
				e := g.effect()
				e.OnAbandoned = policy
				if r, err := e.Do(t.Context(), l, k, refund{"p1", 200}); !errors.Is(err, idempotency.ErrConflict) || r.EffectID == "" || g.count() != 0 || dump(t, s) != before {
					t.Errorf("%s, %v: %+v, %v", st, policy, r, err)
				}
			}
		}
	})
}

// FEN-16: requests that mean the same are the same: order of members, spelling of numbers and strings.
func TestCanonicalRequests(t *testing.T) {
	l, runs := ledger(t, exclusiveStore()), 0
	e := ordering[rawJSON](&runs)
	for i, same := range []rawJSON{`{"a":1,"b":[1,2],"c":"é"}`, ` { "c" : "\u00e9", "b":[1.0,2e0], "a":10e-1 } `} {
		if r, err := e.Do(t.Context(), l, key, same); err != nil || (i > 0) != (r.Decision == idempotency.DecidedDuplicate) {
			t.Errorf("%s: %+v, %v", same, r, err)
		}
	}
	for _, other := range []rawJSON{`{"a":1,"b":[2,1],"c":"é"}`, `{"a":1,"b":[1,2],"c":"é","d":null}`, `{"a":"1","b":[1,2],"c":"é"}`, `{"a":1,"b":[1,2],"c":"e\u0301"}`} {
		if r, err := e.Do(t.Context(), l, key, other); !errors.Is(err, idempotency.ErrConflict) {
			t.Errorf("%s: %+v, %v", other, r, err)
		}
	}
}
