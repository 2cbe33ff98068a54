package idemhttp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/idemhttp"
	"github.com/weft-go/weft/storage/memory"
)

// All writes of a service need an Idempotency-Key. A client that does not know whether its refund has arrived sends
// it again, and gets the first answer.
func Example() {
	ledger, err := idempotency.New(idempotency.Config{
		Storage: new(memory.Store), // storage/postgres or storage/sqlite in a service
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer ledger.Close()

	guard, err := idemhttp.New(idemhttp.Config{
		Ledger: ledger,
		Tenant: func(r *http.Request) (string, error) {
			shop, _, ok := r.BasicAuth() // authentication has checked the password
			if !ok {
				return "", errors.New("no shop")
			}
			return shop, nil
		},
		Exempt: []string{"POST /hooks/acme"}, // a webhook has an id of its own
	})
	if err != nil {
		log.Fatal(err)
	}

	refunds := 0
	mux := http.NewServeMux()
	mux.HandleFunc("POST /refunds", func(w http.ResponseWriter, r *http.Request) {
		var refund struct{ Cents int }
		if err := json.NewDecoder(r.Body).Decode(&refund); err != nil || refund.Cents <= 0 {
			http.Error(w, "cents is missing", http.StatusBadRequest)
			return
		}
		refunds++ // give the payment provider idempotency.AttemptFrom(r.Context()).Hash
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "refund %d of %d cents", refunds, refund.Cents)
	})
	server := httptest.NewServer(guard(mux))
	defer server.Close()

	send := func(key, body string) {
		r, err := http.NewRequest("POST", server.URL+"/refunds", strings.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		r.SetBasicAuth("looms-and-more", "secret")
		r.Header.Set("Content-Type", "application/json")
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		answer, err := server.Client().Do(r)
		if err != nil {
			log.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			log.Fatal(err)
		}
		var problem struct{ Code string }
		if json.Unmarshal(text, &problem) == nil {
			text = []byte(problem.Code)
		}
		fmt.Printf("%d %s, replayed: %t\n", answer.StatusCode, text, answer.Header.Get("Idempotent-Replayed") == "true")
	}
	send("8e03978e", `{"cents": 4900, "payment": "pay_1"}`)
	send("8e03978e", `{"payment": "pay_1", "cents": 4900}`) // the same request
	send("8e03978e", `{"payment": "pay_1", "cents": 5000}`)
	send("", `{"cents": 4900, "payment": "pay_1"}`)
	send("1f9d2c55", `{"cents": 4900, "payment": "pay_1"}`) // another refund of the same payment

	// Output:
	// 201 refund 1 of 4900 cents, replayed: false
	// 201 refund 1 of 4900 cents, replayed: true
	// 409 idempotency_conflict, replayed: false
	// 400 idempotency_required, replayed: false
	// 201 refund 2 of 4900 cents, replayed: false
}
