package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/storage/memory"
)

// policiesFile has all fields, with other values than the defaults where others are allowed.
const policiesFile = `{
	"ttl": {"webhook_days": 30, "api_hours": 72, "batch_days": 7},
	"require_headers": ["X-Request-Id", "idempotency-key"],
	"reject_on_body_mismatch": true,
	"stores": {"fence": "payments-db"},
	"logging": {"include_fields": ["tenant", "source_id", "source_type", "effect_id", "decision", "idempotency_key"]},
	"on_conflict": {"status": 422, "include_diff": false}
}`

func policies(t *testing.T, file string) (p idempotency.Policies) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(file))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return p
}

// FEN-17, FEN-18, FEN-21 to FEN-26: the defaults. An empty file has them, and so has one with empty sections.
func TestDefaultPolicies(t *testing.T) {
	want := idempotency.Policies{
		TTL:                  idempotency.TTLPolicy{WebhookDays: 14, APIHours: 48, BatchDays: 3},
		RequireHeaders:       []string{"Idempotency-Key"},
		RejectOnBodyMismatch: new(true),
		Logging:              idempotency.LoggingPolicy{IncludeFields: []string{"idempotency_key", "decision", "effect_id", "source_type", "source_id"}},
		OnConflict:           idempotency.ConflictPolicy{Status: 409, IncludeDiff: new(true)},
	}
	for name, got := range map[string]idempotency.Policies{
		"DefaultPolicies": idempotency.DefaultPolicies(),
		"an empty file":   policies(t, `{}`).WithDefaults(),
		"empty sections": policies(t, `{"ttl": {}, "require_headers": null, "reject_on_body_mismatch": null, "stores": {},
			"logging": {"include_fields": null}, "on_conflict": {"include_diff": null}}`).WithDefaults(),
	} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if err := got.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	zero := idempotency.Policies{}
	if err := zero.Check(); err != nil {
		t.Errorf("the zero Policies: %v", err)
	}
	if w, a, b := zero.Webhook(), zero.API(), zero.Batch(0); w != 14*24*time.Hour || a != 48*time.Hour || b != 72*time.Hour {
		t.Errorf("the zero Policies keep webhooks %v, the API %v, batches %v", w, a, b)
	}
}

// FEN-21 to FEN-26: a file's values are decoded, accepted and used; defaults replace none of them.
func TestPoliciesFile(t *testing.T) {
	p := policies(t, policiesFile)
	want := idempotency.Policies{
		TTL:                  idempotency.TTLPolicy{WebhookDays: 30, APIHours: 72, BatchDays: 7},
		RequireHeaders:       []string{"X-Request-Id", "idempotency-key"},
		RejectOnBodyMismatch: new(true),
		Stores:               idempotency.StoresPolicy{Fence: "payments-db"},
		Logging:              idempotency.LoggingPolicy{IncludeFields: []string{"tenant", "source_id", "source_type", "effect_id", "decision", "idempotency_key"}},
		OnConflict:           idempotency.ConflictPolicy{Status: 422, IncludeDiff: new(false)},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, p.WithDefaults()); diff != "" {
		t.Errorf("with defaults (-want +got):\n%s", diff)
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	if w, a, b := p.Webhook(), p.API(), p.Batch(0); w != 30*24*time.Hour || a != 72*time.Hour || b != 7*24*time.Hour {
		t.Errorf("webhooks are kept %v, the API %v, batches %v", w, a, b)
	}
	encoded, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, policies(t, string(encoded))); diff != "" {
		t.Errorf("encoded and decoded again (-want +got):\n%s", diff)
	}
}

// FEN-21 to FEN-26: the file's names are the same in JSON and in YAML.
func TestPoliciesTags(t *testing.T) {
	var got []string
	var walk func(prefix string, of reflect.Type)
	walk = func(prefix string, of reflect.Type) {
		for _, f := range reflect.VisibleFields(of) {
			name := f.Tag.Get("yaml")
			if tag := f.Tag.Get("json"); tag != name {
				t.Errorf("%s%s is %q in JSON and %q in YAML", prefix, f.Name, tag, name)
			}
			if f.Type.Kind() == reflect.Struct {
				walk(prefix+name+".", f.Type)
				continue
			}
			got = append(got, prefix+name)
		}
	}
	walk("", reflect.TypeFor[idempotency.Policies]())
	want := []string{
		"ttl.webhook_days", "ttl.api_hours", "ttl.batch_days", "require_headers", "reject_on_body_mismatch",
		"stores.fence", "logging.include_fields", "on_conflict.status", "on_conflict.include_diff",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

// FEN-18 to FEN-26, FEN-62: what is refused, and what is at the limit and accepted.
func TestPoliciesCheck(t *testing.T) {
	for _, c := range []struct {
		requirement, file string
		want              []string // the fields in question
	}{
		{"FEN-20", `{"ttl": {"webhook_days": 14}}`, nil},
		{"FEN-62", `{"ttl": {"webhook_days": 13}}`, []string{"ttl.webhook_days"}},
		{"FEN-62", `{"ttl": {"webhook_days": -1}}`, []string{"ttl.webhook_days"}},
		{"FEN-21", `{"ttl": {"webhook_days": 36500}}`, nil},
		{"FEN-21", `{"ttl": {"webhook_days": 36501}}`, []string{"ttl.webhook_days"}},
		{"FEN-18", `{"ttl": {"api_hours": 24}}`, nil},
		{"FEN-18", `{"ttl": {"api_hours": 72}}`, nil},
		{"FEN-18", `{"ttl": {"api_hours": 23}}`, []string{"ttl.api_hours"}},
		{"FEN-18", `{"ttl": {"api_hours": 73}}`, []string{"ttl.api_hours"}},
		{"FEN-18", `{"ttl": {"api_hours": -48}}`, []string{"ttl.api_hours"}},
		{"FEN-19", `{"ttl": {"batch_days": 1}}`, nil},
		{"FEN-19", `{"ttl": {"batch_days": -3}}`, []string{"ttl.batch_days"}},
		{"FEN-19", `{"ttl": {"batch_days": 36500}}`, nil},
		{"FEN-19", `{"ttl": {"batch_days": 36501}}`, []string{"ttl.batch_days"}},
		{"FEN-22", `{"require_headers": ["idempotency-key", "X-A", "x_b"]}`, nil},
		{"FEN-22", `{"require_headers": []}`, []string{"require_headers"}},
		{"FEN-22", `{"require_headers": ["X-A"]}`, []string{"require_headers"}},
		{"FEN-22", `{"require_headers": ["Idempotency-Key", ""]}`, []string{"require_headers"}},
		{"FEN-22", `{"require_headers": ["Idempotency-Key", "X A"]}`, []string{"require_headers"}},
		{"FEN-22", `{"require_headers": ["Idempotency-Key", "X-A:"]}`, []string{"require_headers"}},
		{"FEN-22", `{"require_headers": ["Idempotency-Key", "É"]}`, []string{"require_headers"}},
		{"FEN-22", `{"require_headers": ["Idempotency-Key", "idempotency-key"]}`, []string{"require_headers"}},
		{"FEN-23", `{"reject_on_body_mismatch": true}`, nil},
		{"FEN-23", `{"reject_on_body_mismatch": false}`, []string{"reject_on_body_mismatch"}},
		{"FEN-24", `{"stores": {"fence": "` + strings.Repeat("a", 200) + `"}}`, nil},
		{"FEN-24", `{"stores": {"fence": "` + strings.Repeat("a", 201) + `"}}`, []string{"stores.fence"}},
		{"FEN-24", `{"stores": {"fence": "a\u0000"}}`, []string{"stores.fence"}},
		{"FEN-25", `{"logging": {"include_fields": ["idempotency_key", "decision", "effect_id", "source_type", "source_id",
			"tenant", "revision", "index_hash", "action", "attempt", "first_seen", "to_seal", "diff_bytes"]}}`, nil},
		{"FEN-25", `{"logging": {"include_fields": []}}`, slices.Repeat([]string{"logging.include_fields"}, 5)},
		{"FEN-25", `{"logging": {"include_fields": ["decision", "effect_id", "source_type", "source_id"]}}`, []string{"logging.include_fields"}},
		{"FEN-25", `{"logging": {"include_fields": ["idempotency_key", "decision", "effect_id", "source_type", "source_id", "body"]}}`, []string{"logging.include_fields"}},
		{"FEN-25", `{"logging": {"include_fields": ["idempotency_key", "decision", "effect_id", "source_type", "source_id", "decision"]}}`, []string{"logging.include_fields"}},
		{"FEN-26", `{"on_conflict": {"status": 409}}`, nil},
		{"FEN-26", `{"on_conflict": {"status": 422, "include_diff": false}}`, nil},
		{"FEN-26", `{"on_conflict": {"status": 200}}`, []string{"on_conflict.status"}},
		{"FEN-26", `{"on_conflict": {"status": 400}}`, []string{"on_conflict.status"}},
		{"FEN-26", `{"on_conflict": {"status": 410}}`, []string{"on_conflict.status"}},
		{"FEN-26", `{"on_conflict": {"status": -409}}`, []string{"on_conflict.status"}},
		{"all", `{"ttl": {"webhook_days": 1, "api_hours": 1, "batch_days": -1}, "require_headers": ["X-A"], "reject_on_body_mismatch": false,
			"stores": {"fence": "\u0000"}, "logging": {"include_fields": ["idempotency_key", "effect_id", "source_type", "source_id"]}, "on_conflict": {"status": 1}}`,
			[]string{"ttl.webhook_days", "ttl.api_hours", "ttl.batch_days", "require_headers", "reject_on_body_mismatch", "stores.fence", "logging.include_fields", "on_conflict.status"}},
	} {
		err := policies(t, c.file).Check()
		var got []string
		for _, problem := range problems(t, err) {
			got = append(got, strings.TrimPrefix(problem.Field, "Policies."))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s, %s: %v: problems with %v, want %v", c.requirement, c.file, err, got, c.want)
		}
	}
	bad := idempotency.Policies{Stores: idempotency.StoresPolicy{Fence: "\xff"}}
	if err := bad.Check(); len(problems(t, err)) != 1 {
		t.Errorf("a name that is not UTF-8: %v", err)
	}
}

// problems are what a Check has joined.
func problems(t *testing.T, err error) (found []*idempotency.ConfigError) {
	t.Helper()
	if err == nil {
		return nil
	}
	if !errors.Is(err, idempotency.ErrInvalid) {
		t.Errorf("%v is not ErrInvalid", err)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v is not joined", err)
	}
	for _, err := range joined.Unwrap() {
		problem, ok := err.(*idempotency.ConfigError)
		if !ok {
			t.Fatalf("%v is a %T", err, err)
		}
		found = append(found, problem)
	}
	return found
}

// FEN-19: a batch is kept a day longer than its window, and at least batch_days. What does not fit is cut, and what
// makes no sense does not become a Retention.
func TestBatch(t *testing.T) {
	const day = 24 * time.Hour
	p := idempotency.Policies{TTL: idempotency.TTLPolicy{BatchDays: 5}}
	for window, want := range map[time.Duration]time.Duration{
		0:                   5 * day,
		day:                 5 * day,
		4 * day:             5 * day,
		4*day + 1:           5*day + 1,
		30 * day:            31 * day,
		math.MaxInt64 - day: math.MaxInt64,
		math.MaxInt64:       math.MaxInt64,
	} {
		if got := p.Batch(window); got != want {
			t.Errorf("Batch(%v) is %v, want %v", window, got, want)
		}
	}
	refused := []time.Duration{p.Batch(-1), p.Batch(math.MinInt64)}
	negative := idempotency.Policies{TTL: idempotency.TTLPolicy{WebhookDays: -1, APIHours: math.MinInt64}}
	for _, retention := range append(refused, negative.Webhook(), negative.API()) {
		e := idempotency.Effect[int, int]{Name: "import", Run: func(context.Context, int) (int, error) { return 0, nil }, Retention: retention}
		if err := e.Check(); !errors.Is(err, idempotency.ErrInvalid) {
			t.Errorf("an Effect with Retention %v: %v, want ErrInvalid", retention, err)
		}
	}
	endless := idempotency.Policies{TTL: idempotency.TTLPolicy{WebhookDays: math.MaxInt64}}
	if got := endless.Webhook(); got != math.MaxInt64 {
		t.Errorf("%d days are %v, want the longest duration", math.MaxInt64, got)
	}
}

// A decisionLog is a slog.Handler that keeps the records of decisions.
type decisionLog struct{ records []slog.Record }

func (l *decisionLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *decisionLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *decisionLog) WithGroup(string) slog.Handler            { return l }

func (l *decisionLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "idempotency: decided" {
		l.records = append(l.records, r)
	}
	return nil
}

// FEN-25, FEN-54: a decision is logged with the fields that the file says, in its order, and by default with the five.
func TestLogFields(t *testing.T) {
	five := []string{"idempotency_key", "decision", "effect_id", "source_type", "source_id"}
	all := []string{"tenant", "first_seen", "idempotency_key", "decision", "effect_id", "source_type", "source_id", "revision", "index_hash", "action", "attempt", "to_seal", "diff_bytes"}
	for _, fields := range [][]string{nil, five, all} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			log := &decisionLog{}
			l, err := idempotency.New(idempotency.Config{
				Storage:  new(memory.Store),
				Logger:   slog.New(log),
				Policies: idempotency.Policies{Logging: idempotency.LoggingPolicy{IncludeFields: fields}},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			e := &idempotency.Effect[string, string]{
				Name:     "refund",
				Run:      func(context.Context, string) (string, error) { time.Sleep(3 * time.Second); return "paid", nil },
				EffectID: func(in, _ string) string { return "refund of " + in },
			}
			k := idempotency.Key{Tenant: "ann", SourceType: "request", SourceID: "7", Revision: "2", IndexHash: "i"}
			if _, err := e.Do(t.Context(), l, k, "5 EUR"); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Do(t.Context(), l, k, "6 EUR"); !errors.Is(err, idempotency.ErrConflict) {
				t.Fatalf("%v, want a conflict", err)
			}
			k.Action = "refund"
			value := map[string][2]any{ // of the two decisions
				"idempotency_key": {k.Hash(), k.Hash()},
				"decision":        {"new", "conflict"},
				"effect_id":       {"refund of 5 EUR", "refund of 5 EUR"},
				"source_type":     {"request", "request"},
				"source_id":       {"7", "7"},
				"tenant":          {"ann", "ann"},
				"revision":        {"2", "2"},
				"index_hash":      {"i", "i"},
				"action":          {"refund", "refund"},
				"attempt":         {int64(1), int64(1)},
				"first_seen":      {begun.UnixMicro(), begun.UnixMicro()},
				"to_seal":         {3 * time.Second, time.Duration(0)},
				"diff_bytes":      {int64(0), true}, // true: more than 0
			}
			if len(log.records) != 2 {
				t.Fatalf("%d decisions are logged, want 2", len(log.records))
			}
			want := fields
			if want == nil {
				want = five
			}
			for i, r := range log.records {
				var got []string
				for a := range r.Attrs {
					got = append(got, a.Key)
					is := a.Value.Any()
					switch v := is.(type) {
					case time.Time:
						is = v.UnixMicro()
					case int64:
						if value[a.Key][i] == true {
							is = v > 0
						}
					}
					if is != value[a.Key][i] {
						t.Errorf("decision %d has %s %v, want %v", i+1, a.Key, is, value[a.Key][i])
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("decision %d is logged with %q, want %q", i+1, got, want)
				}
			}
		})
	}
}

// FEN-21 to FEN-26, FEN-62: New refuses policies that are not valid, and a Ledger has those that are, with defaults.
func TestNewChecksPolicies(t *testing.T) {
	p := policies(t, `{"ttl": {"webhook_days": 13}, "reject_on_body_mismatch": false}`)
	l, err := idempotency.New(idempotency.Config{Storage: new(memory.Store), Policies: p})
	if err == nil {
		l.Close()
	}
	for _, field := range []string{"ttl.webhook_days", "reject_on_body_mismatch"} {
		if !errors.Is(err, idempotency.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("New returns %v, which does not name %s", err, field)
		}
	}
	p = policies(t, policiesFile)
	l, err = idempotency.New(idempotency.Config{Storage: new(memory.Store), Policies: p})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if diff := cmp.Diff(p, l.Policies()); diff != "" {
		t.Errorf("the Ledger's policies (-want +got):\n%s", diff)
	}
	l.Policies().RequireHeaders[0] = "changed"
	if got := l.Policies().RequireHeaders[0]; got != "X-Request-Id" {
		t.Errorf("a caller has changed the Ledger's policies: %q", got)
	}
}

// FEN-26: what WithDefaults returns shares nothing with what it was made of, nor with other defaults.
func TestPoliciesAreCopied(t *testing.T) {
	p := policies(t, policiesFile)
	for range 2 {
		for _, q := range []idempotency.Policies{p.WithDefaults(), idempotency.DefaultPolicies()} {
			*q.RejectOnBodyMismatch, *q.OnConflict.IncludeDiff = false, !*q.OnConflict.IncludeDiff
			q.RequireHeaders[0], q.Logging.IncludeFields[0] = "changed", "changed"
		}
	}
	if diff := cmp.Diff(policies(t, policiesFile), p); diff != "" {
		t.Errorf("the original has changed (-want +got):\n%s", diff)
	}
	if err := idempotency.DefaultPolicies().Check(); err != nil {
		t.Errorf("the defaults have changed: %v", err)
	}
}
