package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// HTTP-30 to HTTP-34: a build is rolled out and back. New orders begin on the active one, whichever process is
// asked, and each stays where it began.
func TestRollOutAndBack(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), filepath.Join(t.TempDir(), "shop.db"), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	const want = `shop-1 is active.
  order-1 begins on shop-1.
shop-2 is active.
  order-2 begins on shop-2.
  order-3 begins on shop-2.
shop-1 is active again.
  order-4 begins on shop-1.
  ann signs order-1.
order-1 was handled by shop-1, and signed by [ann].
  ann signs order-2.
  bob signs order-2.
order-2 was handled by shop-2, and signed by [ann bob].
  ann signs order-3.
  bob signs order-3.
order-3 was handled by shop-2, and signed by [ann bob].
  ann signs order-4.
order-4 was handled by shop-1, and signed by [ann].
The audit trail:
  release-tool: /v1/deployments/shop-1/activate: release of shop-1
  release-tool: /v1/deployments/shop-2/activate: release of shop-2
  release-tool: /v1/deployments/shop-1/activate: customers complain
`
	if got := out.String(); got != want {
		t.Errorf("it has printed\n%s\nwant\n%s", got, want)
	}
}

// The service has pages of its own beside the control plane.
func TestPagesOfItsOwn(t *testing.T) {
	s, err := newService(filepath.Join(t.TempDir(), "shop.db"), "shop-1", "weft_sk_0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for path, want := range map[string]string{"/": "the shop, build shop-1", "/v1/health": `"healthy":true`} {
		a, err := http.Get(s.url() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(a.Body)
		a.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s is %s, %v", path, body, err)
		}
	}
}
