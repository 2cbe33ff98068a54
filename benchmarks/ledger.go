package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/idemhttp"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/memory"
)

// The workloads of the ledger. An effect does nothing and returns a short string; its input has about
// 1 KiB as JSON.
var (
	effectsOne  = &Workload{Name: "l1c1", Title: "L1 c1: effects, one after the other", Parts: only(effects(1, rising))}
	effectsMany = &Workload{Name: "l1c200", Title: "L1 c200: effects, 200 at once, keys in rising order", Parts: only(effects(crowd, rising))}
	effectsUUID = &Workload{Name: "l1uuid", Title: "L1 c200, keys are random UUIDs", Parts: only(effects(crowd, random))}
	repeated    = &Workload{Name: "l2", Title: "L2: the receipt of an effect that is sealed", Parts: only(duplicates)}
	guarded     = &Workload{Name: "l3", Title: "L3: an HTTP request, with a guard and without", Stores: []string{"memory"}, Parts: only(guard)}

	ledgerWorkloads = []*Workload{effectsOne, effectsMany, effectsUUID, repeated, guarded}
)

func rising(i int64) string { return fmt.Sprintf("request-%012d", i) }
func random(int64) string   { return uuid.NewString() }

// A request is the input of an effect.
type request struct {
	Payment string
	Cents   int
	Note    string
}

var asked = request{Payment: "p", Cents: 100, Note: strings.Repeat("n", 950)}

var effect = &idempotency.Effect[request, string]{
	Name:        "refund",
	OnAbandoned: idempotency.Hold,
	Run:         func(context.Context, request) (string, error) { return "done", nil },
}

func keyOf(id string) idempotency.Key {
	return idempotency.Key{Tenant: "shop", SourceType: "request", SourceID: id}
}

// openLedger returns a ledger on a store, and what closes both.
func openLedger(s storage.Storage) (*idempotency.Ledger, func(), error) {
	l, err := idempotency.New(idempotency.Config{Storage: s, Logger: slog.New(slog.DiscardHandler)})
	return l, func() { l.Close(); s.Close() }, err
}

// effects measures so many callers at a time.
func effects(at int, id func(int64) string) func(context.Context, *Child) error {
	return func(ctx context.Context, c *Child) error {
		s, err := openStore(ctx, c.site)
		if err != nil {
			return err
		}
		l, done, err := openLedger(s)
		if err != nil {
			return err
		}
		defer done()
		var n atomic.Int64
		one := func(int) error {
			_, err := effect.Do(ctx, l, keyOf(id(n.Add(1))), asked)
			return err
		}
		if err := during(ctx, c.Warm, at, one); err != nil {
			return err
		}
		before, began := n.Load(), time.Now()
		if err := during(ctx, c.Load, at, one); err != nil {
			return err
		}
		c.report("effects/s", float64(n.Load()-before)/time.Since(began).Seconds())
		return nil
	}
}

// during calls f from so many goroutines until the time is over.
func during(ctx context.Context, d time.Duration, at int, f func(int) error) error {
	began := time.Now()
	return each(ctx, at, at, func(i int) error {
		for time.Since(began) < d {
			if err := f(i); err != nil {
				return err
			}
		}
		return nil
	})
}

// duplicates measures what a repetition costs above the read of its record.
func duplicates(ctx context.Context, c *Child) error {
	s, err := openStore(ctx, c.site)
	if err != nil {
		return err
	}
	l, done, err := openLedger(s)
	if err != nil {
		return err
	}
	defer done()
	k := keyOf("sealed")
	if _, err := effect.Do(ctx, l, k, asked); err != nil {
		return err
	}
	var stored []byte
	for e, err := range storage.All(ctx, s, storage.Prefix([]byte("idem:"))) {
		if err != nil {
			return err
		}
		stored = e.Key
	}
	reads, took, err := repeat(c.Load/4, func() error { _, err := s.Get(ctx, stored); return err })
	if err != nil {
		return err
	}
	c.report("read of the record, us", micros(took, reads))
	calls, took2, err := repeat(c.Load/4, func() error { _, err := effect.Do(ctx, l, k, asked); return err })
	if err != nil {
		return err
	}
	c.report("duplicate, us", micros(took2, calls))
	return nil
}

func micros(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / 1000 / float64(n) }

// guard measures what idemhttp costs above the effect itself, without a network.
func guard(ctx context.Context, c *Child) error {
	l, done, err := openLedger(new(memory.Store))
	if err != nil {
		return err
	}
	defer done()
	g, err := idemhttp.New(idemhttp.Config{Ledger: l, Tenant: func(*http.Request) (string, error) { return "shop", nil }})
	if err != nil {
		return err
	}
	handler := g(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, `{"id":"r1"}`)
	}))
	body := []byte(`{"payment":"p","cents":100,"note":"` + strings.Repeat("n", 950) + `"}`)
	n := int64(0)
	bare, took, err := repeat(c.Load/4, func() error {
		n++
		_, err := effect.Do(ctx, l, keyOf(rising(n)), asked)
		return err
	})
	if err != nil {
		return err
	}
	requests, took2, err := repeat(c.Load/4, func() error {
		n++
		r := httptest.NewRequestWithContext(ctx, "POST", "/refunds", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", rising(n))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			return fmt.Errorf("status %d: %s", w.Code, w.Body)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.report("effect, us", micros(took, bare))
	c.report("guarded request, us", micros(took2, requests))
	return nil
}

// recordEffects makes effects as l1c200 does, in memory.
func recordEffects(ctx context.Context, hundreds, size int) ([][]storage.Op, error) {
	rec := newRecorder(new(memory.Store))
	l, done, err := openLedger(rec)
	if err != nil {
		return nil, err
	}
	defer done()
	err = each(ctx, hundreds*100, crowd, func(i int) error {
		_, err := effect.Do(ctx, l, keyOf(rising(int64(i))), asked)
		return err
	})
	if err != nil {
		return nil, err
	}
	return rec.groups(ctx, hundreds*100/size)
}
