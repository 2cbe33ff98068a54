package idemhttp_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/idemhttp"
)

// FEN-14, FEN-18, FEN-20, FEN-62: New refuses what cannot be right, and names each field.
func TestConfig(t *testing.T) {
	l := open(t, idempotency.Config{})
	hour := time.Hour
	for _, c := range []struct {
		name   string
		config idemhttp.Config
		fields []string
	}{
		{"right", idemhttp.Config{Ledger: l, Tenant: shopOf}, nil},
		{"nothing", idemhttp.Config{}, []string{"Ledger", "Tenant"}},
		{"24 h", idemhttp.Config{Ledger: l, Tenant: shopOf, Retention: 24 * hour}, nil},
		{"72 h", idemhttp.Config{Ledger: l, Tenant: shopOf, Retention: 72 * hour}, nil},
		{"23 h", idemhttp.Config{Ledger: l, Tenant: shopOf, Retention: 23 * hour}, []string{"Retention"}},
		{"73 h", idemhttp.Config{Ledger: l, Tenant: shopOf, Retention: 73 * hour}, []string{"Retention"}},
		{"73 h with a horizon", idemhttp.Config{Ledger: l, Tenant: shopOf, Retention: 73 * hour, RetryHorizon: 36 * hour}, nil},
		{"1 h with a horizon", idemhttp.Config{Ledger: l, Tenant: shopOf, Retention: hour, RetryHorizon: hour / 2}, nil},
		{"less than two horizons", idemhttp.Config{Ledger: l, Tenant: shopOf, Retention: 48 * hour, RetryHorizon: 25 * hour}, []string{"Retention"}},
		{"a horizon alone", idemhttp.Config{Ledger: l, Tenant: shopOf, RetryHorizon: 25 * hour}, []string{"Retention"}},
		{"shorter than the lease", idemhttp.Config{Ledger: l, Tenant: shopOf, Retention: 30 * time.Second, RetryHorizon: time.Second}, []string{"Retention"}},
		{"negative", idemhttp.Config{Ledger: l, Tenant: shopOf, Retention: -1, RetryHorizon: -1, Timeout: -1, MaxBody: -1}, []string{"Retention", "RetryHorizon", "Timeout", "MaxBody"}},
		{"policies", idemhttp.Config{Ledger: l, Tenant: shopOf, OnAbandoned: 9, ServerErrors: 9}, []string{"OnAbandoned", "ServerErrors"}},
		{"pattern", idemhttp.Config{Ledger: l, Tenant: shopOf, Exempt: []string{"POST hooks"}}, []string{"Exempt"}},
		{"empty pattern", idemhttp.Config{Ledger: l, Tenant: shopOf, Exempt: []string{""}}, []string{"Exempt"}},
		{"same pattern", idemhttp.Config{Ledger: l, Tenant: shopOf, Exempt: []string{"/a", "/a"}}, []string{"Exempt"}},
		{"patterns that contradict", idemhttp.Config{Ledger: l, Tenant: shopOf, Exempt: []string{"/a/{x}", "/{y}/b"}}, []string{"Exempt"}},
		{"pattern without a ledger", idemhttp.Config{Tenant: shopOf, Exempt: []string{"POST hooks"}}, []string{"Ledger", "Exempt"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := idemhttp.New(c.config)
			if (g == nil) != (len(c.fields) > 0) || (err == nil) != (len(c.fields) == 0) {
				t.Fatalf("%v, want problems of %v", err, c.fields)
			}
			if err != nil && !errors.Is(err, idempotency.ErrInvalid) {
				t.Errorf("%v does not wrap ErrInvalid", err)
			}
			got := map[string]bool{}
			for _, e := range configErrors(err) {
				got[e.Field[strings.LastIndex(e.Field, ".")+1:]] = true
			}
			want := map[string]bool{}
			for _, f := range c.fields {
				want[f] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
	defer func() {
		if recover() == nil {
			t.Error("a guard takes a nil handler")
		}
	}()
	guard(t, idemhttp.Config{})(nil)
}

func configErrors(err error) []*idempotency.ConfigError {
	if e, ok := err.(*idempotency.ConfigError); ok {
		return []*idempotency.ConfigError{e}
	}
	var all []*idempotency.ConfigError
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range list.Unwrap() {
			all = append(all, configErrors(e)...)
		}
	}
	return all
}
