package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// A customer sends requests to the service, and prints the answers.
type customer struct {
	ctx     context.Context
	service **running
	wrong   error
}

// A said is an answer of the service.
type said struct {
	status   int
	body     string
	replayed bool
}

// post sends a request with a key, and again for as long as the answer says that the first one is in
// progress. Its status is 0 if the service dies meanwhile.
func (c *customer) post(path, key, body string) said {
	for {
		a, again := c.try(path, key, body)
		if !again {
			fmt.Printf("  %-8s %s %-37s %s\n", key, path, body, a)
			return a
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (c *customer) try(path, key, body string) (a said, again bool) {
	r, err := http.NewRequestWithContext(c.ctx, http.MethodPost, (*c.service).url+path, strings.NewReader(body))
	if err != nil {
		return said{body: err.Error()}, false
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return said{body: "no answer"}, false
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	c.wrong = errors.Join(c.wrong, err)
	a = said{reply.StatusCode, strings.TrimSpace(string(text)), reply.Header.Get("Idempotent-Replayed") != ""}
	var problem struct {
		Code string
		Diff json.RawMessage
	}
	if reply.Header.Get("Content-Type") == "application/problem+json" && json.Unmarshal(text, &problem) == nil {
		a.body = strings.TrimSpace(problem.Code + " " + string(problem.Diff))
	}
	return a, problem.Code == "idempotency_in_progress" || problem.Code == "idempotency_unavailable"
}

// get reads something, which needs no key.
func (c *customer) get(path string) string {
	reply, err := http.Get((*c.service).url + path)
	if err != nil {
		return err.Error()
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	c.wrong = errors.Join(c.wrong, err)
	return string(text)
}

func (c *customer) expect(a said, status int) {
	if a.status != status {
		c.wrong = errors.Join(c.wrong, fmt.Errorf("%s: want %d", a, status))
	}
}

// expectSame checks that an answer is the first one again.
func (c *customer) expectSame(a, first said) {
	if a.status != first.status || a.body != first.body || !a.replayed {
		c.wrong = errors.Join(c.wrong, fmt.Errorf("%s: want %s again", a, first))
	}
}

func (a said) String() string {
	if a.status == 0 {
		return a.body
	}
	words := fmt.Sprintf("%d %s", a.status, a.body)
	if a.replayed {
		words += " (replayed)"
	}
	return words
}
