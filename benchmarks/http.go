package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
)

// overHTTP measures the control plane beside direct calls of the same engine, in turn. The engine runs, so that the plane
// finds one that has the workflow. It does not serve the queue in which the runs wait. So nothing is executed: a start and
// a signal are one commit each.
var overHTTP = &Workload{Name: "h1", Title: "H1: requests over 64 connections, beside 64 direct callers", Stores: []string{"sqlite", "bolt", "pebble", "postgres"}, Parts: only(plane)}

const connections = 64

func plane(ctx context.Context, c *Child) (err error) {
	s, err := openStore(ctx, c.site)
	if err != nil {
		return err
	}
	defer s.Close()
	none := slog.New(slog.DiscardHandler)
	workflow := &engine.Workflow[json.RawMessage, string]{
		Name: "w", Defaults: engine.StartOptions{Queue: "not served"},
		Func: func(*engine.Run, json.RawMessage) (string, error) { return "", errors.New("the workflow was executed") },
	}
	e, err := engine.New(engine.Config{Storage: s, Workflows: []engine.Definition{workflow}, Logger: none})
	if err != nil {
		return err
	}
	defer e.Close()
	const secret = "weft_sk_of-a-benchmark-on-loopback"
	p, err := control.New(control.Config{Engine: e, RateLimit: 1_000_000, Logger: none, Keys: []control.Key{{ID: "bench", Secret: secret, Scopes: []string{"admin"}}}})
	if err != nil {
		return err
	}
	defer p.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: p}
	go srv.Serve(listener)
	defer srv.Close()
	clients := make([]*wire, connections)
	for i := range clients {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			return err
		}
		defer conn.Close()
		clients[i] = &wire{conn: conn, from: bufio.NewReader(conn), to: bufio.NewWriter(conn), secret: secret}
	}
	target := func(i int) string { return fmt.Sprint("target-", i) }
	const input = `{"cents":4900,"sku":"apple"}`
	for i := range connections {
		if _, err := e.StartWorkflow(ctx, &engine.StartRequest{Workflow: "w", ID: target(i), Input: json.RawMessage(input)}); err != nil {
			return err
		}
	}

	return whileRunning(ctx, e, func() error {
		if err := until(ctx, func() bool {
			engines, err := e.Engines(ctx)
			return err == nil && slices.ContainsFunc(engines, func(i engine.EngineInfo) bool { return i.Alive })
		}); err != nil {
			return err
		}
		for _, m := range []struct {
			name         string
			direct, http func(i int) error
		}{
			{
				"creates",
				func(int) error {
					_, err := e.StartWorkflow(ctx, &engine.StartRequest{Workflow: "w", ID: uuid.NewString(), Input: json.RawMessage(input)})
					return err
				},
				func(i int) error {
					return clients[i].do("POST", "/v1/runs", uuid.NewString(), `{"workflowName":"w","input":`+input+`}`, http.StatusCreated)
				},
			},
			{
				"signals",
				func(i int) error {
					id := uuid.NewString()
					_, err := e.SendSignal(ctx, signal.Message{WorkflowID: target(i), Name: "paid", ID: &id, Payload: json.RawMessage(input)})
					return err
				},
				func(i int) error {
					return clients[i].do("POST", "/v1/runs/"+target(i)+"/signals/paid", "", `{"signalId":"`+uuid.NewString()+`","payload":`+input+`}`, http.StatusOK)
				},
			},
			{
				"gets",
				func(i int) error { _, err := e.Payloads(ctx, target(i)); return err },
				func(i int) error { return clients[i].do("GET", "/v1/runs/"+target(i), "", "", http.StatusOK) },
			},
		} {
			if _, _, err := rateOf(ctx, c.Warm, m.http); err != nil {
				return err
			}
			var direct, over []float64
			var took []time.Duration
			for range 4 {
				rate, _, err := rateOf(ctx, c.Load/4, m.direct)
				if err != nil {
					return err
				}
				direct = append(direct, rate)
				rate, times, err := rateOf(ctx, c.Load/4, m.http)
				if err != nil {
					return err
				}
				over, took = append(over, rate), append(took, times...)
			}
			slices.Sort(took)
			c.report(m.name+"/s, direct", median(direct))
			c.report(m.name+"/s, over HTTP", median(over))
			c.report(m.name+", over HTTP of direct", median(over)/median(direct))
			c.report(m.name+" over HTTP, p99, ms", float64(took[len(took)*99/100].Microseconds())/1000)
		}
		return nil
	})
}

// A wire is a client with one connection. It does nothing that the server does not need: the server is measured, and shares the
// processors with its clients. With http.Transport, fewer requests were answered.
type wire struct {
	conn   net.Conn
	from   *bufio.Reader
	to     *bufio.Writer
	secret string
}

func (c *wire) do(method, path, key, body string, want int) error {
	if err := c.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	fmt.Fprintf(c.to, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n", method, path, c.secret)
	if key != "" {
		fmt.Fprintf(c.to, "Idempotency-Key: %s\r\n", key)
	}
	if body != "" {
		fmt.Fprintf(c.to, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	fmt.Fprintf(c.to, "\r\n%s", body)
	if err := c.to.Flush(); err != nil {
		return err
	}
	a, err := http.ReadResponse(c.from, nil)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != want {
		err = fmt.Errorf("%s %s: status %d: %s", method, path, a.StatusCode, text)
	}
	return err
}

// rateOf calls f from 64 goroutines until the time is over, each with its number. It returns the calls a second,
// and how long each took.
func rateOf(ctx context.Context, d time.Duration, f func(i int) error) (rate float64, took []time.Duration, err error) {
	var mu sync.Mutex
	began := time.Now()
	err = each(ctx, connections, connections, func(i int) error {
		var mine []time.Duration
		for time.Since(began) < d {
			asked := time.Now()
			if err := f(i); err != nil {
				return err
			}
			mine = append(mine, time.Since(asked))
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, mine...)
		return nil
	})
	return float64(len(took)) / time.Since(began).Seconds(), took, err
}
