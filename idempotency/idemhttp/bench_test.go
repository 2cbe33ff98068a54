package idemhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weft-go/weft/idempotency"
	"github.com/weft-go/weft/idempotency/idemhttp"
)

// document has 1 KiB, as has the answer to it.
var document = func() []byte {
	fields := map[string]any{}
	for i := range 20 {
		fields[fmt.Sprintf("field-%02d", i)] = strings.Repeat("x", 20) + fmt.Sprint(i)
	}
	fields["cents"] = 4900
	d, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return append(d, bytes.Repeat([]byte(" "), 1024-len(d))...)
}()

// BenchmarkGuard compares one effect by the ledger alone with one by a guard, for a request and an answer of 1 KiB.
// The difference is what a guard costs.
func BenchmarkGuard(b *testing.B) {
	for _, c := range costs {
		for _, fresh := range []bool{true, false} {
			name := map[bool]string{true: "/new", false: "/duplicate"}[fresh]
			b.Run(c.name+name, func(b *testing.B) {
				once := c.prepare(b)
				once(0)
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					if fresh {
						once(i + 1)
					} else {
						once(0)
					}
				}
			})
		}
	}
}

// costs are what BenchmarkGuard compares: functions that make an effect with the n-th key.
var costs = []struct {
	name    string
	prepare func(t testing.TB) func(n int)
}{
	{"ledger", func(t testing.TB) func(n int) {
		l := open(t, idempotency.Config{})
		e := &idempotency.Effect[json.RawMessage, []byte]{Name: "bare", Run: func(context.Context, json.RawMessage) ([]byte, error) { return document, nil }}
		return func(n int) {
			if _, err := e.Do(context.Background(), l, idempotency.Key{Tenant: "acme", SourceType: "POST /refunds", SourceID: fmt.Sprint("k", n)}, document); err != nil {
				t.Fatal(err)
			}
		}
	}},
	{"guard", func(t testing.TB) func(n int) {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /refunds", func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			w.Write(document)
		})
		h := guard(t, idemhttp.Config{})(mux)
		r := call{}.request("http://shop")
		r.ContentLength = int64(len(document))
		w := &sink{header: http.Header{}}
		return func(n int) {
			r.Header["Idempotency-Key"] = []string{fmt.Sprint("k", n)}
			r.Body = io.NopCloser(bytes.NewReader(document))
			clear(w.header)
			h.ServeHTTP(w, r)
			if w.status != http.StatusCreated {
				t.Fatalf("status %d", w.status)
			}
		}
	}},
}

// A sink is a ResponseWriter that costs nothing.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
