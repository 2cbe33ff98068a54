package forwarded

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// Whatever is in the headers, an address that a client has made up itself does not count: only the
// element that the outermost of the trusted proxies has added.
func FuzzForwarded(f *testing.F) {
	f.Add("1.1.1.1", "https", 1)
	f.Add("1.1.1.1, 2.2.2.2,", "http,https", 2)
	f.Add("[::1]:80,x", "", 3)
	f.Fuzz(func(t *testing.T, forged, proto string, hops int) {
		if hops < 1 || hops > 5 {
			return
		}
		p := Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Hops: hops}
		r := &http.Request{RemoteAddr: "192.0.2.7:1", Header: http.Header{"X-Forwarded-For": {forged}, "X-Forwarded-Proto": {proto}}}
		if got := p.Peer(r); got.Address != netip.MustParseAddr("192.0.2.7") || got.HTTPS {
			t.Fatalf("of an untrusted peer: got %v", got)
		}
		// Each of the proxies adds what it has seen: the first the client, the next ones each other.
		header := []string{forged, "203.0.113.9"}
		for range hops - 1 {
			header = append(header, "10.0.0.2")
		}
		r = &http.Request{RemoteAddr: "10.0.0.1:1", Header: http.Header{"X-Forwarded-For": {strings.Join(header, ", ")}}}
		if got := p.Peer(r).Address; got != netip.MustParseAddr("203.0.113.9") {
			t.Fatalf("behind %d proxies: got %v", hops, got)
		}
	})
}
