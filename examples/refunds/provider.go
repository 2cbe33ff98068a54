package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// A provider is the external system. It makes a refund whenever it is asked to, and knows its refunds
// by the key that came with them.
type provider struct {
	mu    sync.Mutex // guards the fields below
	made  map[string][]string
	total int
	asked int
	held  chan struct{} // closed when a refund is made; nil: replies are not held
	loose chan struct{} // closed when replies may leave
}

func newProvider() *provider { return &provider{made: map[string][]string{}} }

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Refund-Key")
	if r.Method == http.MethodGet {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asked++
		if len(p.made[key]) == 0 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, p.made[key][0])
		return
	}
	var refund Refund
	if err := json.NewDecoder(r.Body).Decode(&refund); err != nil || refund.Cents <= 0 {
		w.WriteHeader(http.StatusPaymentRequired)
		return
	}
	p.mu.Lock()
	p.total++
	id := fmt.Sprint("refund-", p.total)
	p.made[key] = append(p.made[key], id)
	held, loose := p.held, p.loose
	p.held = nil
	p.mu.Unlock()
	if held != nil {
		close(held)
		<-loose
	}
	fmt.Fprint(w, id)
}

// hold has the provider not answer the next refund. The channel is closed when it has made it.
func (p *provider) hold() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held, p.loose = make(chan struct{}), make(chan struct{})
	return p.held
}

func (p *provider) goOn() { close(p.loose) }

func (p *provider) refunds() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

func (p *provider) questions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// A client is how the service speaks to the provider.
type client struct{ url string }

var (
	errDeclined = errors.New("the provider declines")
	errNone     = errors.New("there is no such refund")
)

// refund asks for a refund under a key.
func (c client) refund(ctx context.Context, key string, r Refund) (id string, err error) {
	body, err := json.Marshal(r)
	if err != nil {
		return "", err
	}
	return c.send(ctx, http.MethodPost, key, body)
}

// find asks for the refund that was made under a key.
func (c client) find(ctx context.Context, key string) (id string, err error) {
	return c.send(ctx, http.MethodGet, key, nil)
}

func (c client) send(ctx context.Context, method, key string, body []byte) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Refund-Key", key)
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	id, err := io.ReadAll(reply.Body)
	switch {
	case err != nil:
		return "", err
	case reply.StatusCode == http.StatusPaymentRequired:
		return "", errDeclined
	case reply.StatusCode == http.StatusNotFound:
		return "", errNone
	case reply.StatusCode != http.StatusOK:
		return "", fmt.Errorf("the provider answers %s", reply.Status)
	}
	return string(id), nil
}
