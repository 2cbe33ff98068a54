package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// ServeHTTP charges.
func (b *book) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c Charge
	if json.NewDecoder(r.Body).Decode(&c) != nil {
		w.WriteHeader(http.StatusBadRequest)
	} else if ok, _ := b.charge(c); !ok {
		w.WriteHeader(http.StatusPaymentRequired)
	}
}

// A remoteBank is the bank at an address.
type remoteBank struct{ address string }

func (b *remoteBank) Charge(ctx context.Context, c Charge) error {
	body, err := json.Marshal(c)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusPaymentRequired:
		return ErrDeclined
	}
	return fmt.Errorf("bank: %s", answer.Status)
}
