package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// A provider delivers webhooks until they are answered, several at a time and in
// no particular order. It loses every third answer.
type provider struct {
	url, secret    string
	requests, lost int64
}

func (p *provider) deliver(ctx context.Context, payments []string) error {
	var events []Event
	for _, id := range payments {
		for n := 1; n <= 3; n++ {
			e := Event{ID: fmt.Sprintf("evt_%s_%d", id, n), Payment: id, Cents: 100 * n}
			if n == 3 {
				e.Of = 3
			}
			events = append(events, e)
		}
	}
	rand.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	errs := make(chan error, len(events))
	var couriers sync.WaitGroup
	for _, e := range events {
		couriers.Go(func() { errs <- p.untilAnswered(ctx, e) })
	}
	couriers.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *provider) untilAnswered(ctx context.Context, e Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	for {
		answer, err := p.post(ctx, e.ID, body)
		if err != nil {
			return err
		}
		if atomic.AddInt64(&p.requests, 1)%3 == 0 {
			atomic.AddInt64(&p.lost, 1)
			continue // the answer is lost
		}
		switch answer.StatusCode {
		case http.StatusOK:
			return nil
		case http.StatusServiceUnavailable:
			continue
		}
		return fmt.Errorf("webhook %s: %s", e.ID, answer.Status)
	}
}

func (p *provider) post(ctx context.Context, id string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if r.Header, err = signed(p.secret, id, body); err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer, err
}

// signed returns the headers of a delivery, as Standard Webhooks says.
func signed(secret, id string, body []byte) (http.Header, error) {
	key, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	signature, err := key.Sign(id, now, body)
	h := http.Header{}
	h.Set(standardwebhooks.HeaderWebhookID, id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Set(standardwebhooks.HeaderWebhookSignature, signature)
	return h, err
}
