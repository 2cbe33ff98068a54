package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/webhook"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/storage/memory"
	"github.com/weft-go/weft/storage/storagetest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	other  = "whsec_" + "b3RoZXIgc2VjcmV0IG9mIDI0IGJ5dGVz"
)

// Paid is the body of the tests' events.
type Paid struct {
	Account string
	Seq     string
	Version string
	Action  string
	Cents   int
}

// A shop receives events, and counts what they do.
type shop struct {
	t      *testing.T
	store  *storagetest.Faulty
	ledger *idempotency.Ledger
	hook   http.Handler

	mu   sync.Mutex
	runs []Paid // what Run was called with
}

// config is what the tests change.
type config = webhook.Config[Paid, string]

// open returns a shop whose Run returns the result "paid" and the number of its call.
func open(t *testing.T, change ...func(*config)) *shop {
	t.Helper()
	return openOn(t, idempotency.Config{}, change...)
}

func openOn(t *testing.T, l idempotency.Config, change ...func(*config)) *shop {
	t.Helper()
	s := &shop{t: t, store: storagetest.NewFaulty(new(memory.Store), nil)}
	l.Storage, l.Logger = s.store, slog.New(slog.DiscardHandler)
	var err error
	if s.ledger, err = idempotency.New(l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.ledger.Close() })
	c := config{
		Ledger:    s.ledger,
		Provider:  "acme",
		Signature: standard(t, secret),
		Event:     parse,
		Effect:    &idempotency.Effect[Paid, string]{Name: "mark-paid", Run: s.run},
		Logger:    slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&c)
	}
	if s.hook, err = webhook.New(c); err != nil {
		t.Fatal(err)
	}
	return s
}

func standard(t *testing.T, secrets ...string) webhook.Signature {
	t.Helper()
	sig, err := webhook.Standard(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

func parse(signed http.Header, body []byte) (webhook.Event, Paid, error) {
	var p Paid
	err := json.Unmarshal(body, &p)
	return webhook.Event{
		ID: signed.Get("webhook-id"), Version: p.Version, Action: p.Action, Source: p.Account, Sequence: p.Seq,
	}, p, err
}

func (s *shop) run(_ context.Context, p Paid) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = append(s.runs, p)
	return fmt.Sprint("paid ", len(s.runs)), nil
}

// ran returns how often Run was called.
func (s *shop) ran() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs)
}

// headers returns the headers of a delivery that is signed now, by the library of the provider.
func headers(t testing.TB, secret, id string, body []byte) http.Header {
	t.Helper()
	key, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	signature, err := key.Sign(id, now, body)
	if err != nil {
		t.Fatal(err)
	}
	return http.Header{
		"Content-Type":      {"application/json"},
		"Webhook-Id":        {id},
		"Webhook-Timestamp": {strconv.FormatInt(now.Unix(), 10)},
		"Webhook-Signature": {signature},
	}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// deliver delivers an event that is signed.
func (s *shop) deliver(id string, p Paid) answer {
	s.t.Helper()
	body := encode(s.t, p)
	return s.request(headers(s.t, secret, id, body), body)
}

// request delivers what it is given.
func (s *shop) request(h http.Header, body []byte) answer {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/hooks/acme", bytes.NewReader(body))
	r.Header = h
	w := httptest.NewRecorder()
	s.hook.ServeHTTP(w, r)
	return answerOf(s.t, w.Result())
}

// An answer is what the provider gets.
type answer struct {
	Status     int
	RetryAfter int    // seconds; -1: no header
	Body       string // as it came
	EffectID   string `json:"effect_id"`
	Decision   string
	Code       string
}

func answerOf(t *testing.T, r *http.Response) answer {
	t.Helper()
	defer r.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(r.Body); err != nil {
		t.Fatal(err)
	}
	a := answer{}
	if err := json.Unmarshal(body.Bytes(), &a); err != nil {
		t.Fatalf("%d %q: %v", r.StatusCode, body.Bytes(), err)
	}
	want := "application/json"
	if a.Code != "" {
		want = "application/problem+json"
	}
	if got := r.Header.Get("Content-Type"); got != want {
		t.Errorf("the type of %q is %q, want %q", body.Bytes(), got, want)
	}
	a.Status, a.RetryAfter, a.Body = r.StatusCode, -1, body.String()
	if s := r.Header.Get("Retry-After"); s != "" {
		var err error
		if a.RetryAfter, err = strconv.Atoi(s); err != nil {
			t.Error(err)
		}
	}
	if (a.Status == http.StatusServiceUnavailable) != (a.RetryAfter >= 1 && a.RetryAfter <= 30) {
		t.Errorf("status %d has Retry-After %d", a.Status, a.RetryAfter)
	}
	return a
}

// is checks status and decision.
func (a answer) is(t *testing.T, status int, decision idempotency.Decision) {
	t.Helper()
	if a.Status != status || a.Decision != string(decision) {
		t.Errorf("%d %s, want %d with the decision %q", a.Status, a.Body, status, decision)
	}
}
