package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/activity"
	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// FEN-5 to FEN-8, section 2: each field of a Key: empty, the longest, longer, not UTF-8, with NUL, with what is escaped in store keys. What is invalid writes
// nothing and runs nothing.
func TestKeyIsValidated(t *testing.T) {
	fields := map[string]struct {
		set  func(k *idempotency.Key, s string)
		most int
	}{
		"Tenant":     {func(k *idempotency.Key, s string) { k.Tenant = s }, 100},
		"SourceType": {func(k *idempotency.Key, s string) { k.SourceType = s }, 200},
		"SourceID":   {func(k *idempotency.Key, s string) { k.SourceID = s }, 255},
		"Revision":   {func(k *idempotency.Key, s string) { k.Revision = s }, 255},
		"IndexHash":  {func(k *idempotency.Key, s string) { k.IndexHash = s }, 255},
		"Action":     {func(k *idempotency.Key, s string) { k.Action = s }, 100},
	}
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l := ledger(t, s)
		for name, f := range fields {
			for _, bad := range []string{strings.Repeat("x", f.most+1), strings.Repeat("x", 1<<20), "\xff", "a\xc3", "\x00", "a\x00b", "\xed\xa0\x80"} {
				k, g := key, new(target)
				f.set(&k, bad)
				if r, err := g.effect().Do(t.Context(), l, k, one); !errors.Is(err, idempotency.ErrInvalid) || !strings.Contains(err.Error(), name) || len(err.Error()) > 3000 || r.Decision != "" || g.count() != 0 {
					t.Errorf("%s %.20q: %+v, %v", name, bad, r, err)
				}
			}
		}
		for _, k := range []idempotency.Key{{}, {SourceID: "id"}, {SourceType: "st"}, {Tenant: "t", SourceType: "st", Revision: "r", Action: "a"}, {Tenant: "t", SourceID: "id", IndexHash: "ix"}} {
			if _, err := new(target).effect().Do(t.Context(), l, k, one); !errors.Is(err, idempotency.ErrInvalid) {
				t.Errorf("%+v: %v", k, err)
			}
		}
		if left := dump(t, s); left != "" {
			t.Errorf("written: %s", left)
		}
		seen := map[string]bool{}
		for name, f := range fields {
			for _, good := range []string{"", strings.Repeat("%", f.most), strings.Repeat(":", f.most), strings.Repeat("é", f.most/2), "a:b%3a", " ", "\n"} {
				k := idempotency.Key{SourceType: "st", SourceID: "id", IndexHash: "ix"}
				f.set(&k, good)
				if name == "SourceType" && good == "" {
					continue
				}
				again := seen[k.Hash()]
				seen[k.Hash()] = true
				r, err := new(target).effect().Do(t.Context(), l, k, one)
				if err != nil || again != (r.Decision == idempotency.DecidedDuplicate) {
					t.Errorf("%s %.20q: %+v, %v", name, good, r, err)
				}
			}
		}
	})
}

// FEN-10: one key of two tenants is two effects; none gets the other's answer, conflict or error.
func TestTenants(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, g := ledger(t, s), new(target)
		var all []string
		for _, tenant := range []string{"", "a", "b", "a:b", "A"} {
			k := key
			k.Tenant = tenant
			r, err := g.effect().Do(t.Context(), l, k, refund{tenant, len(all)})
			if err != nil || r.Decision != idempotency.DecidedNew || r.Result != "refunded "+tenant {
				t.Errorf("%q: %+v, %v", tenant, r, err)
			}
			all = append(all, r.EffectID)
		}
		k := key
		k.Tenant = "a"
		_, err := g.effect().Do(t.Context(), l, k, refund{"other", 1})
		var c *idempotency.ConflictError
		if !errors.As(err, &c) || c.EffectID != all[1] {
			t.Errorf("%v", err)
		}
		for _, id := range append([]string{all[0]}, all[2:]...) {
			if strings.Contains(err.Error(), id) {
				t.Errorf("an error names another tenant's effect: %v", err)
			}
		}
		for i, err := range l.List(t.Context(), idempotency.Filter{Tenant: "a"}) {
			must(t, err)
			if i.EffectID != all[1] {
				t.Errorf("%+v", i)
			}
		}
	})
}

// FEN-14, FEN-18, FEN-20, FEN-62: what Check and Do refuse of an Effect. Nothing is written.
func TestEffectIsValidated(t *testing.T) {
	run := func(context.Context, refund) (string, error) { return "", errors.New("it ran") }
	verify := func(context.Context, refund) (v activity.Verification[string], err error) { return v, err }
	s := exclusiveStore()
	l := ledger(t, s)
	for field, e := range map[string]*idempotency.Effect[refund, string]{
		"Effect.Name":          {Run: run},
		"Effect.Name ":         {Name: strings.Repeat("x", 101), Run: run},
		"Effect.Name  ":        {Name: "\xff", Run: run},
		"Effect.Name   ":       {Name: "a\x00", Run: run},
		"Effect.Run":           {Name: "e"},
		"Effect.OnAbandoned":   {Name: "e", Run: run, OnAbandoned: 3},
		"Effect.Timeout":       {Name: "e", Run: run, Timeout: -1},
		"Effect.VerifyTimeout": {Name: "e", Run: run, VerifyTimeout: -1},
		"Effect.Settle":        {Name: "e", Run: run, Settle: -1},
		"Effect.Retention":     {Name: "e", Run: run, Retention: -1},
		"Effect.RetryHorizon":  {Name: "e", Run: run, RetryHorizon: -1},
		"Effect.Retention ":    {Name: "e", Run: run, RetryHorizon: 24*time.Hour + 1},                        // of the default, 48 h
		"Effect.Retention  ":   {Name: "e", Run: run, Retention: 2*time.Hour - 1, RetryHorizon: time.Hour},   // FEN-62
		"Effect.Retention   ":  {Name: "e", Run: run, Retention: math.MaxInt64, RetryHorizon: math.MaxInt64}, // no overflow
		"Effect.Retention    ": {Name: "e", Run: run, Retention: math.MaxInt64, RetryHorizon: 1<<62 + 1},     // no overflow
		"Effect.VerifyFences":  {Name: "e", Run: run, VerifyFences: true},
		"Effect.Order":         {Name: "e", Run: run, Order: &idempotency.Order[refund]{}},
		"Effect.Errors":        {Name: "e", Run: run, Errors: []error{errBroke, nil}},
	} {
		err := e.Check()
		var c *idempotency.ConfigError
		if !errors.As(err, &c) || c.Field != strings.TrimSpace(field) || !errors.Is(err, idempotency.ErrInvalid) {
			t.Errorf("%s: %v", field, err)
		}
		if _, err := e.Do(t.Context(), l, key, one); !errors.Is(err, idempotency.ErrInvalid) {
			t.Errorf("%s: Do: %v", field, err)
		}
	}
	// All problems are told at once.
	several := &idempotency.Effect[refund, string]{Timeout: -1, Settle: -1}
	for _, field := range []string{"Name", "Run", "Timeout", "Settle"} {
		if err := several.Check(); !strings.Contains(fmt.Sprint(err), "Effect."+field) {
			t.Errorf("%s is missing: %v", field, err)
		}
	}
	for name, e := range map[string]*idempotency.Effect[refund, string]{
		"the least":   {Name: "e", Run: run},
		"twice":       {Name: strings.Repeat("x", 100), Run: run, Retention: 2 * time.Hour, RetryHorizon: time.Hour},
		"Wait":        {Name: "e", Run: run, Wait: -1},
		"everything":  {Name: "e", Run: run, Verify: verify, VerifyFences: true, Retention: math.MaxInt64, RetryHorizon: 1<<62 - 1, Timeout: math.MaxInt64, Settle: math.MaxInt64},
		"without end": {Name: "e", Run: run, Retention: math.MaxInt64},
	} {
		if err := e.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// FEN-14: a Retention that is not longer than the Lease.
	for retention, good := range map[time.Duration]bool{idempotency.DefaultLease: false, idempotency.DefaultLease + 1: true} {
		e := new(target).effect()
		e.Retention = retention
		_, err := e.Do(t.Context(), ledger(t, exclusiveStore()), key, one)
		var c *idempotency.ConfigError
		if good != (err == nil) || !good && (!errors.As(err, &c) || c.Field != "Effect.Retention") {
			t.Errorf("Retention %v: %v", retention, err)
		}
	}
	if _, commits := s.counts(); commits != 0 {
		t.Errorf("%d commits", commits)
	}
}

// named is a codec with a name.
type named struct{ name string }

func (n named) Name() string                                      { return n.name }
func (n named) Encode(ctx context.Context, v any) ([]byte, error) { return weft.JSON.Encode(ctx, v) }
func (n named) Decode(ctx context.Context, data []byte, v any) error {
	return weft.JSON.Decode(ctx, data, v)
}

// limited is a store with other capabilities.
type limited struct {
	*memory.Store
	change func(c *storage.Capabilities)
}

func (l limited) Capabilities() storage.Capabilities {
	c := l.Store.Capabilities()
	l.change(&c)
	return c
}

// FEN-14, FEN-18, FEN-24, section 2: what New refuses of a Config, and that it tells all at once.
func TestConfigIsValidated(t *testing.T) {
	good := new(memory.Store)
	var none *memory.Store
	for name, c := range map[string]struct {
		c     idempotency.Config
		field string // or the capability
	}{
		"no storage":            {idempotency.Config{}, "Config.Storage"},
		"nil storage":           {idempotency.Config{Storage: none}, "Config.Storage"},
		"short lease":           {idempotency.Config{Storage: good, Lease: time.Second - 1}, "Config.Lease"},
		"negative lease":        {idempotency.Config{Storage: good, Lease: -time.Second}, "Config.Lease"},
		"lease as a retention":  {idempotency.Config{Storage: good, Lease: 48 * time.Hour}, "Config.Lease"},
		"negative result":       {idempotency.Config{Storage: good, MaxResult: -1}, "Config.MaxResult"},
		"large result":          {idempotency.Config{Storage: good, MaxResult: 16<<20 + 1}, "Config.MaxResult"},
		"result of this store":  {idempotency.Config{Storage: limited{new(memory.Store), func(c *storage.Capabilities) { c.MaxBatch.Bytes = 4000 }}, MaxResult: 1001}, "Config.MaxResult"},
		"codec without a name":  {idempotency.Config{Storage: good, Codec: named{}}, "Config.Codec"},
		"nil codec":             {idempotency.Config{Storage: good, Codecs: []idempotency.Codec{nil}}, "Config.Codecs"},
		"no conditional batch":  {idempotency.Config{Storage: limited{new(memory.Store), func(c *storage.Capabilities) { c.ConditionalBatch = false }}}, "conditionalBatch"},
		"no atomic batch":       {idempotency.Config{Storage: limited{new(memory.Store), func(c *storage.Capabilities) { c.AtomicBatch = false }}}, "atomicBatch"},
		"no read after write":   {idempotency.Config{Storage: limited{new(memory.Store), func(c *storage.Capabilities) { c.ReadAfterWrite = false }}}, "readAfterWrite"},
		"policy of an API":      {idempotency.Config{Storage: good, Policies: idempotency.Policies{TTL: idempotency.TTLPolicy{APIHours: 73}}}, "Policies.ttl.api_hours"},
		"policy of an API, low": {idempotency.Config{Storage: good, Policies: idempotency.Policies{TTL: idempotency.TTLPolicy{APIHours: 23}}}, "Policies.ttl.api_hours"},
		"policy of webhooks":    {idempotency.Config{Storage: good, Policies: idempotency.Policies{TTL: idempotency.TTLPolicy{WebhookDays: 13}}}, "Policies.ttl.webhook_days"},
	} {
		l, err := idempotency.New(c.c)
		if l != nil || err == nil || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var config *idempotency.ConfigError
		var capability *storage.CapabilityError
		if errors.As(err, &config) && (config.Field != c.field || !errors.Is(err, idempotency.ErrInvalid)) || config == nil && !errors.As(err, &capability) {
			t.Errorf("%s: %+v", name, err)
		}
	}
	_, err := idempotency.New(idempotency.Config{Lease: 1, Codecs: []idempotency.Codec{nil}, Policies: idempotency.Policies{TTL: idempotency.TTLPolicy{APIHours: 1}}})
	for _, field := range []string{"Config.Storage", "Config.Lease", "Config.Codecs", "Policies.ttl.api_hours"} {
		if !strings.Contains(fmt.Sprint(err), field) {
			t.Errorf("%s is missing: %v", field, err)
		}
	}
	for name, c := range map[string]idempotency.Config{
		"the least":    {Storage: good},
		"lease":        {Storage: good, Lease: 48*time.Hour - 1},
		"short lease":  {Storage: good, Lease: time.Second},
		"result":       {Storage: good, MaxResult: weft.MaxPayload},
		"small store":  {Storage: limited{new(memory.Store), func(c *storage.Capabilities) { c.MaxBatch.Bytes = 4000 }}},
		"small result": {Storage: good, MaxResult: 1},
	} {
		l, err := idempotency.New(c)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		l.Close()
	}
}

// Section 2: a request that cannot be compared is ErrInvalid, and nothing is written.
func TestRequestIsValidated(t *testing.T) {
	onAllStores(t, func(t *testing.T, s storage.Storage) {
		l, ran := ledger(t, s), false
		do := func(in any, fingerprint func(any) any) error {
			e := &idempotency.Effect[any, string]{Name: "any", Fingerprint: fingerprint, Run: func(context.Context, any) (string, error) { ran = true; return "", nil }}
			_, err := e.Do(t.Context(), l, key, in)
			return err
		}
		for name, in := range map[string]any{
			"function": func() {}, "channel": make(chan int), "infinity": math.Inf(1), "panics": panicsAsJSON{}, "huge": strings.Repeat("x", weft.MaxPayload+1),
			"not UTF-8": "a\xff", "not UTF-8, within": map[string][]any{"a": {1, "\xff"}}, "a name that is not UTF-8": map[string]int{"\xff": 1},
			"a text that is not UTF-8": notUTF8{}, "JSON that is not UTF-8": rawJSON("\"\xff\""),
			"invalid JSON": rawJSON("{"), "duplicate members": rawJSON(`{"a":1,"a":2}`), "huge exponent": rawJSON(`1e10000`), "lone surrogate": rawJSON(`"\ud800"`),
		} {
			if err := do(in, nil); !errors.Is(err, idempotency.ErrInvalid) {
				t.Errorf("%s: %.200v", name, err)
			}
		}
		if err := do(1, func(any) any { panic("no fingerprint") }); !errors.Is(err, idempotency.ErrInvalid) {
			t.Errorf("a Fingerprint that panics: %v", err)
		}
		if left := dump(t, s); left != "" || ran {
			t.Errorf("ran %v, written %s", ran, left)
		}
		for n, in := range []any{"\ufffd", `\ufffd`, rawJSON(`"\ufffd"`), map[string]any{"\ufffd": rawJSON(`"\ufffd"`)}} {
			k := key
			k.Revision = fmt.Sprint(n)
			e := &idempotency.Effect[any, string]{Name: "any", Run: func(context.Context, any) (string, error) { return "", nil }}
			if _, err := e.Do(t.Context(), l, k, in); err != nil {
				t.Errorf("%q, which is valid: %v", in, err)
			}
		}
	})
}

type notUTF8 struct{}

func (notUTF8) MarshalText() ([]byte, error) { return []byte{0xff}, nil }

type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }
