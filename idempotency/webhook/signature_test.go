package webhook_test

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/webhook"
)

// FEN-31: a delivery whose signature is missing or wrong is answered with 401, and the store is not
// asked.
func TestBadSignatureReachesNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // here nothing but deliveries calls the store
		s := open(t)
		synctest.Wait()
		body := encode(t, Paid{Account: "a", Cents: 100})
		for name, change := range map[string]func(h http.Header) []byte{
			"nothing":            func(h http.Header) []byte { clear(h); return body },
			"no id":              func(h http.Header) []byte { h.Del("Webhook-Id"); return body },
			"no timestamp":       func(h http.Header) []byte { h.Del("Webhook-Timestamp"); return body },
			"no signature":       func(h http.Header) []byte { h.Del("Webhook-Signature"); return body },
			"empty id":           func(h http.Header) []byte { h.Set("Webhook-Id", ""); return body },
			"another id":         func(h http.Header) []byte { h.Set("Webhook-Id", "evt_2"); return body },
			"another body":       func(http.Header) []byte { return bytes.Replace(body, []byte("100"), []byte("999"), 1) },
			"no body":            func(http.Header) []byte { return nil },
			"another time":       func(h http.Header) []byte { h.Set("Webhook-Timestamp", "946684801"); return body },
			"a time with a sign": func(h http.Header) []byte { h.Set("Webhook-Timestamp", "+"+h.Get("Webhook-Timestamp")); return body },
			"a time with a zero": func(h http.Header) []byte { h.Set("Webhook-Timestamp", "0"+h.Get("Webhook-Timestamp")); return body },
			"no time":            func(h http.Header) []byte { h.Set("Webhook-Timestamp", "now"); return body },
			"two ids":            func(h http.Header) []byte { h.Add("Webhook-Id", "evt_2"); return body },
			"two equal ids":      func(h http.Header) []byte { h.Add("Webhook-Id", "evt_1"); return body },
			"two times":          func(h http.Header) []byte { h.Add("Webhook-Timestamp", "1"); return body },
			"two signatures":     func(h http.Header) []byte { h.Add("Webhook-Signature", "v1,"); return body },
			"an empty signature": func(h http.Header) []byte { h.Set("Webhook-Signature", "v1,"); return body },
			"another version": func(h http.Header) []byte {
				h.Set("Webhook-Signature", "v2"+h.Get("Webhook-Signature")[2:])
				return body
			},
			"another secret":      func(h http.Header) []byte { replace(h, headers(t, other, "evt_1", body)); return body },
			"signed with nothing": func(h http.Header) []byte { replace(h, headers(t, "", "evt_1", body)); return body },
		} {
			before := s.store.Calls()
			h := headers(t, secret, "evt_1", body)
			a := s.request(h, change(h))
			if a.Status != http.StatusUnauthorized || a.Code != "signature_invalid" {
				t.Errorf("%s: %d %s, want 401", name, a.Status, a.Body)
			}
			if calls := s.store.Calls() - before; calls != 0 {
				t.Errorf("%s: %d calls of the store, want none", name, calls)
			}
		}
		before := s.store.Calls()
		s.request(headers(t, secret, "evt_1", body), body).is(t, http.StatusOK, idempotency.DecidedNew)
		if s.store.Calls() == before || s.ran() != 1 {
			t.Errorf("a delivery that is signed made %d calls of the store and %d runs", s.store.Calls()-before, s.ran())
		}
	})
}

func replace(h, by http.Header) {
	clear(h)
	for name, values := range by {
		h[name] = values
	}
}

// The vector of the tests of standard-webhooks: TestWebhookSign in libraries/go/webhook_test.go.
const (
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorBody      = `{"test": 2432232314}`
	vectorAt        = 1614265330
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

// What standard-webhooks accepts and refuses in its own tests, Standard does too.
func TestVectorsOfStandardWebhooks(t *testing.T) {
	at := time.Unix(vectorAt, 0)
	synctest.Test(t, func(t *testing.T) { // the clock can be set to the time of the vector
		for _, c := range []struct {
			name   string
			now    time.Time
			change func(h http.Header)
			want   bool
		}{
			{"too new", at.Add(-5*time.Minute - time.Second), nil, false},
			{"as new as possible", at.Add(-5 * time.Minute), nil, true},
			{"valid", at, nil, true},
			{"no id", at, func(h http.Header) { h.Del("webhook-id") }, false},
			{"no timestamp", at, func(h http.Header) { h.Del("webhook-timestamp") }, false},
			{"no signature", at, func(h http.Header) { h.Del("webhook-signature") }, false},
			{"invalid signature", at, func(h http.Header) {
				h.Set("webhook-signature", "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=")
			}, false},
			{"partial signature", at, func(h http.Header) { h.Set("webhook-signature", "v1,") }, false},
			{"one of several signatures", at, func(h http.Header) {
				h.Set("webhook-signature", strings.Join([]string{
					"v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=",
					"v2,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=",
					vectorSignature,
					"v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=",
				}, " "))
			}, true},
			{"another timestamp", at, func(h http.Header) { h.Set("webhook-timestamp", strconv.Itoa(vectorAt+1)) }, false},
			{"as old as possible", at.Add(5 * time.Minute), nil, true},
			{"too old", at.Add(5*time.Minute + time.Second), nil, false},
		} {
			time.Sleep(time.Until(c.now))
			for _, secret := range []string{secret, strings.TrimPrefix(secret, "whsec_")} {
				h := http.Header{}
				h.Set("webhook-id", vectorID)
				h.Set("webhook-timestamp", strconv.Itoa(vectorAt))
				h.Set("webhook-signature", vectorSignature)
				if c.change != nil {
					c.change(h)
				}
				signed, err := standard(t, secret)(h, []byte(vectorBody))
				if (err == nil) != c.want {
					t.Errorf("%s: %v, want accepted: %t", c.name, err, c.want)
				}
				if err != nil && (signed != nil || !errors.Is(err, webhook.ErrSignature)) {
					t.Errorf("%s: %v and %v, want no headers and ErrSignature", c.name, signed, err)
				}
			}
		}
	})
}

// During a rotation the provider signs with the old secret or the new one.
func TestEachSecretIsAccepted(t *testing.T) {
	sig := standard(t, other, secret)
	body := []byte("{}")
	for _, by := range []string{secret, other} {
		if _, err := sig(headers(t, by, "evt_1", body), body); err != nil {
			t.Errorf("signed with %s: %v", by, err)
		}
	}
	if _, err := standard(t, other)(headers(t, secret, "evt_1", body), body); err == nil {
		t.Error("a secret that was removed is accepted")
	}
}

// A secret with which anybody could sign is refused, and no secret is shown.
func TestSecretsThatAreRefused(t *testing.T) {
	for _, secrets := range [][]string{
		nil,
		{""},
		{"whsec_"},
		{secret, ""},
		{"whsec_bm90IGxvbmcgZW5vdWdo"}, // 15 bytes
		{"whsec_not*base64*but*long*enough*for*a*secret"},
	} {
		sig, err := webhook.Standard(secrets...)
		if sig != nil || !errors.Is(err, idempotency.ErrInvalid) || !errors.As(err, new(*idempotency.ConfigError)) {
			t.Errorf("%q: %v, want a *ConfigError", secrets, err)
			continue
		}
		for _, s := range secrets {
			if s = strings.TrimPrefix(s, "whsec_"); s != "" && strings.Contains(err.Error(), s) {
				t.Errorf("the error shows a secret: %v", err)
			}
		}
	}
}

// An id that contains a full stop has a second reading: the signature of id a.1, timestamp T and body B
// is also that of id a, timestamp 1 and body T.B.
func TestIDWithFullStop(t *testing.T) {
	body := []byte("{}")
	if _, err := standard(t, secret)(headers(t, secret, "evt.1", body), body); !errors.Is(err, webhook.ErrSignature) {
		t.Errorf("it is accepted: %v", err)
	}
}

// FEN-63: Event sees the headers that the signature covers, and no others.
func TestOnlySignedHeadersReachEvent(t *testing.T) {
	var seen http.Header
	s := open(t, func(c *config) {
		c.Event = func(signed http.Header, body []byte) (webhook.Event, Paid, error) {
			seen = signed
			return parse(signed, body)
		}
	})
	body := encode(t, Paid{Cents: 100})
	h := headers(t, secret, "evt_1", body)
	h.Set("X-Tenant", "another")
	h.Set("Idempotency-Key", "another")
	s.request(h, body).is(t, http.StatusOK, idempotency.DecidedNew)
	if len(seen) != 2 || seen.Get("Webhook-Id") != "evt_1" || seen.Get("Webhook-Timestamp") != h.Get("Webhook-Timestamp") {
		t.Errorf("Event got the headers %v, want Webhook-Id and Webhook-Timestamp", seen)
	}
}

// FEN-31, FEN-63: whatever comes, Standard does not panic, and accepts nothing that was not signed: an id
// and a timestamp which it returns were signed together with the body, and have one reading.
func FuzzSignature(f *testing.F) {
	good := standardVector(f)
	f.Add(vectorID, strconv.FormatInt(time.Now().Unix(), 10), good, []byte(vectorBody), false)
	f.Add("evt.1", "1", "v1,", []byte("2.{}"), true)
	f.Add("", "", "", []byte(nil), false)
	f.Add("\x00", "-1", "v1,\xff v1a,x ,", []byte("\xff"), true)
	f.Add(vectorID, strconv.Itoa(vectorAt), vectorSignature, []byte(vectorBody), false)
	key, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		f.Fatal(err)
	}
	sig, err := webhook.Standard(secret)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, id, at, signature string, body []byte, twice bool) {
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {at}, "Webhook-Signature": {signature}}
		if twice {
			h.Add("webhook-id", id)
		}
		check := func(h http.Header) {
			signed, err := sig(h, body)
			if err != nil {
				if !errors.Is(err, webhook.ErrSignature) || signed != nil {
					t.Fatalf("%v, %v", signed, err)
				}
				return
			}
			seconds, err := strconv.ParseInt(at, 10, 64)
			if err != nil || strconv.FormatInt(seconds, 10) != at || strings.Contains(id, ".") || twice {
				t.Fatalf("accepted with a second reading: id %q, timestamp %q", id, at)
			}
			want, err := key.Sign(id, time.Unix(seconds, 0), body)
			if err != nil {
				t.Fatal(err)
			}
			offered := strings.Split(h.Get("Webhook-Signature"), " ")
			if !slices.ContainsFunc(offered, func(s string) bool { return s == want || strings.HasPrefix(s, want+",") }) {
				t.Fatalf("accepted %q, which does not have the signature %q", offered, want)
			}
			if len(signed) != 2 || signed.Get("webhook-id") != id || signed.Get("webhook-timestamp") != at {
				t.Fatalf("the signed headers are %q", signed)
			}
		}
		check(h)
		// The same, signed by the provider now: all is accepted but what has a second reading.
		now := time.Now()
		if at = strconv.FormatInt(now.Unix(), 10); id == "" {
			return
		}
		signature, err := key.Sign(id, now, body)
		if err != nil {
			t.Fatal(err)
		}
		h = http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {at}, "Webhook-Signature": {signature}}
		if twice = false; !strings.Contains(id, ".") {
			if _, err := sig(h, body); err != nil {
				t.Fatalf("what was signed is refused: %v", err)
			}
		}
		check(h)
	})
}

// standardVector returns a signature that is valid now.
func standardVector(t testing.TB) string {
	return headers(t, secret, vectorID, []byte(vectorBody)).Get("Webhook-Signature")
}
