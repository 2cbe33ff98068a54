package idempotency

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weft-go/weft/internal/saturate"
)

// Policies are the rules that a service keeps in a file, in JSON or YAML. Decode the file into a Policies
// and set Config.Policies, which New checks. What is absent or zero has the default, as in DefaultPolicies:
//
//	ttl: {webhook_days: 14, api_hours: 48, batch_days: 3}
//	require_headers: [Idempotency-Key]
//	reject_on_body_mismatch: true
//	stores: {fence: payments-db}
//	logging: {include_fields: [idempotency_key, decision, effect_id, source_type, source_id]}
//	on_conflict: {status: 409, include_diff: true}
//
// Have your decoder refuse unknown fields, so that it finds misspelt ones.
type Policies struct {
	TTL TTLPolicy `json:"ttl" yaml:"ttl"`

	// RequireHeaders are the HTTP header fields that a guarded request must have. Idempotency-Key must be
	// one of them. The default is that one alone.
	RequireHeaders []string `json:"require_headers" yaml:"require_headers"`

	// RejectOnBodyMismatch says that a key with another request is a conflict. Only true is valid, and it is
	// the default: the field is there so that a file that asks for something else is refused.
	RejectOnBodyMismatch *bool `json:"reject_on_body_mismatch" yaml:"reject_on_body_mismatch"`

	Stores     StoresPolicy   `json:"stores" yaml:"stores"`
	Logging    LoggingPolicy  `json:"logging" yaml:"logging"`
	OnConflict ConflictPolicy `json:"on_conflict" yaml:"on_conflict"`
}

// A TTLPolicy says how long results are kept, from when they were sealed. See Policies.Webhook, API and Batch.
type TTLPolicy struct {
	// WebhookDays is for webhooks and consumers: 14 to 36,500 days. The default is 14, twice the 7 days for
	// which providers repeat a delivery.
	WebhookDays int `json:"webhook_days" yaml:"webhook_days"`

	// APIHours is for the requests of an API: 24 to 72 hours. The default is 48. For longer or shorter times,
	// say how long clients repeat a request: set RetryHorizon and Retention of idemhttp.Config or of the Effect.
	APIHours int `json:"api_hours" yaml:"api_hours"`

	// BatchDays is the least for jobs: 1 to 36,500 days. The default is 3.
	BatchDays int `json:"batch_days" yaml:"batch_days"`
}

// A StoresPolicy names the store of the Ledger, for those who read the file. Which store it is, Config.Storage
// says.
type StoresPolicy struct {
	Fence string `json:"fence" yaml:"fence"` // at most 200 bytes of UTF-8, without NUL
}

// A LoggingPolicy says which fields the log has of each decision.
type LoggingPolicy struct {
	// IncludeFields are attributes, in the order in which they are logged. Required, and the default, are
	// idempotency_key (the hash of the key), decision, effect_id, source_type and source_id. The others that may
	// be added are tenant, revision, index_hash, action, attempt, first_seen, to_seal and diff_bytes.
	IncludeFields []string `json:"include_fields" yaml:"include_fields"`
}

// A ConflictPolicy says how conflicts are answered over HTTP.
type ConflictPolicy struct {
	Status      int   `json:"status" yaml:"status"`             // 409, which is the default, or 422
	IncludeDiff *bool `json:"include_diff" yaml:"include_diff"` // whether the answer says where the requests differ; nil is true
}

const (
	day = 24 * time.Hour

	// webhookHorizon is how long providers repeat a delivery.
	webhookHorizon = 7 * day

	maxDays      = 36_500
	maxStoreName = 200
)

// requiredHeaders are in each guarded request.
var requiredHeaders = []string{"Idempotency-Key"}

// requiredLogFields are in each log of a decision.
var requiredLogFields = []string{"idempotency_key", "decision", "effect_id", "source_type", "source_id"}

// logFields are all fields that a log may have of a Report.
var logFields = map[string]func(r Report) slog.Value{
	"idempotency_key": func(r Report) slog.Value { return slog.StringValue(r.Hash) },
	"decision":        func(r Report) slog.Value { return slog.StringValue(string(r.Decision)) },
	"effect_id":       func(r Report) slog.Value { return slog.StringValue(r.EffectID) },
	"source_type":     func(r Report) slog.Value { return slog.StringValue(r.Key.SourceType) },
	"source_id":       func(r Report) slog.Value { return slog.StringValue(r.Key.SourceID) },
	"tenant":          func(r Report) slog.Value { return slog.StringValue(r.Key.Tenant) },
	"revision":        func(r Report) slog.Value { return slog.StringValue(r.Key.Revision) },
	"index_hash":      func(r Report) slog.Value { return slog.StringValue(r.Key.IndexHash) },
	"action":          func(r Report) slog.Value { return slog.StringValue(r.Key.Action) },
	"attempt":         func(r Report) slog.Value { return slog.IntValue(r.Attempt) },
	"first_seen":      func(r Report) slog.Value { return slog.TimeValue(r.FirstSeen) },
	"to_seal":         func(r Report) slog.Value { return slog.DurationValue(r.ToSeal) },
	"diff_bytes":      func(r Report) slog.Value { return slog.IntValue(r.DiffBytes) },
}

// DefaultPolicies returns the policies of an empty file.
func DefaultPolicies() Policies { return Policies{}.WithDefaults() }

// WithDefaults returns a copy of p in which what is absent or zero has the default. Its pointers are not nil,
// and it shares no memory with p.
func (p Policies) WithDefaults() Policies {
	p.TTL.WebhookDays = cmp.Or(p.TTL.WebhookDays, 14)
	p.TTL.APIHours = cmp.Or(p.TTL.APIHours, 48)
	p.TTL.BatchDays = cmp.Or(p.TTL.BatchDays, 3)
	p.RequireHeaders = listOr(p.RequireHeaders, requiredHeaders)
	p.RejectOnBodyMismatch = trueOr(p.RejectOnBodyMismatch)
	p.Logging.IncludeFields = listOr(p.Logging.IncludeFields, requiredLogFields)
	p.OnConflict.Status = cmp.Or(p.OnConflict.Status, http.StatusConflict)
	p.OnConflict.IncludeDiff = trueOr(p.OnConflict.IncludeDiff)
	return p
}

func listOr(list, fallback []string) []string {
	if list == nil {
		list = fallback
	}
	return slices.Clone(list)
}

func trueOr(b *bool) *bool { return new(b == nil || *b) }

// Webhook returns for how long webhooks and consumers keep a result, as an Effect's Retention.
func (p Policies) Webhook() time.Duration { return retention(p.WithDefaults().TTL.WebhookDays, day) }

// API returns for how long the requests of an API keep a result, as an Effect's Retention.
func (p Policies) API() time.Duration { return retention(p.WithDefaults().TTL.APIHours, time.Hour) }

// Batch returns for how long a job's items keep a result, as an Effect's Retention, if the job may repeat them
// for the time window: a day more than the window, and at least BatchDays. A sum longer than the longest
// time.Duration is cut to that. A negative window is returned as it is, and the Effect's Check refuses it.
func (p Policies) Batch(window time.Duration) time.Duration {
	if window < 0 {
		return window
	}
	return max(saturate.Add(window, day), retention(p.WithDefaults().TTL.BatchDays, day))
}

// retention returns n units, cut to the longest time.Duration. If n is negative, so is the result, which Checks refuse.
func retention(n int, unit time.Duration) time.Duration {
	if n < 0 {
		return -unit
	}
	return saturate.Times(int64(n), unit)
}

// Check returns the problems of p, joined: each is a *ConfigError, with the field's name in the file.
func (p Policies) Check() error {
	p = p.WithDefaults()
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &ConfigError{"Policies." + field, fmt.Sprintf(format, args...)})
	}
	if n, least := p.TTL.WebhookDays, int(2*webhookHorizon/day); n < least || n > maxDays {
		bad("ttl.webhook_days", "is %d, and must be %d to %d: providers repeat deliveries for 7 days, and wall clocks err", n, least, maxDays)
	}
	if n := p.TTL.APIHours; n < 24 || n > 72 {
		bad("ttl.api_hours", "is %d, and must be 24 to 72; for another time set RetryHorizon and Retention in the code", n)
	}
	if n := p.TTL.BatchDays; n < 1 || n > maxDays {
		bad("ttl.batch_days", "is %d, and must be 1 to %d", n, maxDays)
	}
	for _, problem := range listProblems(p.RequireHeaders, requiredHeaders, headerName) {
		bad("require_headers", "%s", problem)
	}
	if !*p.RejectOnBodyMismatch {
		bad("reject_on_body_mismatch", "is false, and must be true: a key is never used for two requests")
	}
	if s := p.Stores.Fence; len(s) > maxStoreName || !utf8.ValidString(s) || strings.Contains(s, "\x00") {
		bad("stores.fence", "is longer than %d bytes, is not UTF-8, or contains a NUL: %.200q", maxStoreName, s)
	}
	for _, problem := range listProblems(p.Logging.IncludeFields, requiredLogFields, logField) {
		bad("logging.include_fields", "%s", problem)
	}
	if s := p.OnConflict.Status; s != http.StatusConflict && s != http.StatusUnprocessableEntity {
		bad("on_conflict.status", "is %d, and must be 409 or 422", s)
	}
	return errors.Join(errs...)
}

// listProblems says which entries of a list are not known or occur twice, and which required ones are missing.
// Entries with the same canonical form are the same.
func listProblems(list, required []string, canonical func(string) (string, bool)) (problems []string) {
	seen := map[string]bool{}
	for _, entry := range list {
		name, ok := canonical(entry)
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("has %.200q, which is no such name", entry))
		case seen[name]:
			problems = append(problems, fmt.Sprintf("has %q twice", name))
		}
		seen[name] = true
	}
	for _, name := range required {
		if !seen[name] {
			problems = append(problems, fmt.Sprintf("lacks %q", name))
		}
	}
	return problems
}

func logField(s string) (string, bool) { return s, logFields[s] != nil }

// headerName returns the canonical form of the name of a header field, and whether it is one (RFC 9110, section 5.6.2).
func headerName(s string) (string, bool) {
	const others = "!#$%&'*+-.^_`|~"
	ok := s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		alphanumeric := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !alphanumeric && !strings.ContainsRune(others, r)
	})
	return http.CanonicalHeaderKey(s), ok
}

// attrs are what the log has of a decision. p has its defaults, and was checked.
func (p LoggingPolicy) attrs(r Report) []slog.Attr {
	attrs := make([]slog.Attr, len(p.IncludeFields))
	for i, field := range p.IncludeFields {
		attrs[i] = slog.Attr{Key: field, Value: logFields[field](r)}
	}
	return attrs
}
