package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/weft-go/weft/idempotency"
)

// ErrSignature is wrapped by the errors of the Signature that Standard returns.
var ErrSignature = errors.New("webhook: the signature is missing or wrong")

// A Signature verifies that a delivery comes from the provider. It returns those headers that the
// signature covers, and no others: anybody can change what is not signed. Any error is answered
// with 401. It must not change h and body. It is called by several goroutines at once.
type Signature func(h http.Header, body []byte) (signed http.Header, err error)

// minSecret is the least length of a decoded secret in bytes (Standard Webhooks 1.0.0, signature scheme).
const minSecret = 24

// Standard returns the symmetric signature of Standard Webhooks 1.0.0: HMAC-SHA256 over the headers
// webhook-id and webhook-timestamp and the body. A timestamp that differs from this machine's clock
// by more than five minutes is refused. The signed headers are those two.
//
// Secrets are base64 of at least 24 bytes, with or without the prefix whsec_. A signature by any of
// them is accepted: during a rotation, give the old secret and the new one. Each of the three headers
// must be there once. An id that contains a full stop is refused, because full stops separate the
// parts that are signed, and the same signature would be valid for another id.
//
// The error joins a *idempotency.ConfigError for each bad secret. It does not show secrets.
func Standard(secrets ...string) (Signature, error) {
	if len(secrets) == 0 {
		return nil, &idempotency.ConfigError{Field: "webhook.Standard", Problem: "has no secrets"}
	}
	var errs []error
	keys := make([]*standardwebhooks.Webhook, len(secrets))
	for n, s := range secrets {
		var err error
		if keys[n], err = parseSecret(s); err != nil {
			errs = append(errs, &idempotency.ConfigError{Field: fmt.Sprintf("webhook.Standard: secret %d", n+1), Problem: err.Error()})
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return func(h http.Header, body []byte) (http.Header, error) {
		signed, err := covered(h)
		if err != nil {
			return nil, err
		}
		accepted := func(k *standardwebhooks.Webhook) bool {
			e := k.Verify(body, h)
			err = errors.Join(err, e)
			return e == nil
		}
		if !slices.ContainsFunc(keys, accepted) {
			return nil, fmt.Errorf("%w: %w", ErrSignature, err)
		}
		return signed, nil
	}, nil
}

// parseSecret refuses secrets that are too short. With an empty one, anybody could sign.
func parseSecret(s string) (*standardwebhooks.Webhook, error) {
	const prefix = "whsec_"
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, prefix))
	switch {
	case err != nil:
		return nil, errors.New("is not base64")
	case len(key) < minSecret:
		return nil, fmt.Errorf("has %d bytes, at least %d are required", len(key), minSecret)
	}
	return standardwebhooks.NewWebhookRaw(key)
}

// covered returns the headers that the signature covers. It refuses all that have a second reading:
// the library takes the first of several values, and numbers such as +1 and 01.
func covered(h http.Header) (http.Header, error) {
	signed := http.Header{}
	for _, name := range []string{
		standardwebhooks.HeaderWebhookID,
		standardwebhooks.HeaderWebhookTimestamp,
		standardwebhooks.HeaderWebhookSignature,
	} {
		values := h.Values(name)
		if len(values) != 1 {
			return nil, fmt.Errorf("%w: there are %d headers %s, want 1", ErrSignature, len(values), name)
		}
		if name != standardwebhooks.HeaderWebhookSignature {
			signed.Set(name, values[0])
		}
	}
	if strings.Contains(signed.Get(standardwebhooks.HeaderWebhookID), ".") {
		return nil, fmt.Errorf("%w: %s contains a full stop", ErrSignature, standardwebhooks.HeaderWebhookID)
	}
	at := signed.Get(standardwebhooks.HeaderWebhookTimestamp)
	if n, err := strconv.ParseInt(at, 10, 64); err != nil || strconv.FormatInt(n, 10) != at {
		return nil, fmt.Errorf("%w: %s is no number of seconds: %q", ErrSignature, standardwebhooks.HeaderWebhookTimestamp, at)
	}
	return signed, nil
}
