package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/webhook"
	"github.com/weft-go/weft/storage/memory"
)

// An Invoice is what the events of a provider are about.
type Invoice struct {
	Number  string
	Version string
	Cents   int
}

// An invoice changes, and the provider reports each version of it. An event that is delivered again
// happened already, and an older version comes too late.
func ExampleNew() {
	ledger, err := idempotency.New(idempotency.Config{Storage: new(memory.Store), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	defer ledger.Close()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	signature, err := webhook.Standard(secret)
	if err != nil {
		log.Fatal(err)
	}
	hook, err := webhook.New(webhook.Config[Invoice, string]{
		Ledger:    ledger,
		Provider:  "acme",
		Signature: signature,
		Event: func(signed http.Header, body []byte) (webhook.Event, Invoice, error) {
			var i Invoice
			err := json.Unmarshal(body, &i)
			return webhook.Event{ID: signed.Get("webhook-id"), Version: i.Version, Source: i.Number}, i, err
		},
		Compare: idempotency.CompareInt,
		Effect: &idempotency.Effect[Invoice, string]{
			Name:     "book",
			EffectID: func(_ Invoice, booking string) string { return booking },
			Run: func(_ context.Context, i Invoice) (string, error) {
				fmt.Printf("booked %d cents\n", i.Cents)
				return "booking-" + i.Number + "-" + i.Version, nil
			},
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	deliver := func(id string, i Invoice) {
		body, _ := json.Marshal(i)
		r := httptest.NewRequest(http.MethodPost, "/hooks/acme", bytes.NewReader(body))
		key, _ := standardwebhooks.NewWebhook(secret)
		now := time.Now()
		by, _ := key.Sign(id, now, body)
		r.Header.Set("webhook-id", id)
		r.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
		r.Header.Set("webhook-signature", by)
		w := httptest.NewRecorder()
		hook.ServeHTTP(w, r)
		answer, _ := io.ReadAll(w.Body)
		fmt.Print(w.Code, " ", string(answer))
	}
	deliver("evt_2", Invoice{"7", "2", 4900})
	deliver("evt_2", Invoice{"7", "2", 4900}) // again
	deliver("evt_1", Invoice{"7", "1", 4500}) // late
	// Output:
	// booked 4900 cents
	// 200 {"effect_id":"booking-7-2","decision":"new"}
	// 200 {"effect_id":"booking-7-2","decision":"duplicate"}
	// 200 {"effect_id":"booking-7-2","decision":"stale"}
}
