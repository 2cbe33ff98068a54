package control_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/storage/memory"
)

// HTTP-90 to HTTP-92: by which requests https is required.
func TestHTTPS(t *testing.T) {
	trusted := control.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}, Hops: 1}
	outer := trusted
	outer.Hops = 2
	for _, c := range []struct {
		what    string
		https   control.HTTPS
		proxies control.Proxies
		header  []string
		path    string
		refused bool
	}{
		{"off", control.HTTPSOff, control.Proxies{}, []string{"http"}, "/v1/keys", false},
		{"forwarded as http", control.HTTPSIfForwarded, control.Proxies{}, []string{"http"}, "/v1/keys", true},
		{"forwarded as https", control.HTTPSIfForwarded, control.Proxies{}, []string{"https"}, "/v1/keys", false},
		{"forwarded as HTTPS", control.HTTPSIfForwarded, control.Proxies{}, []string{" HTTPS "}, "/v1/keys", false},
		{"the first element counts", control.HTTPSIfForwarded, control.Proxies{}, []string{"https,http"}, "/v1/keys", false},
		{"and no other", control.HTTPSIfForwarded, control.Proxies{}, []string{"http,https"}, "/v1/keys", true},
		{"of two headers the first", control.HTTPSIfForwarded, control.Proxies{}, []string{"http", "https"}, "/v1/keys", true},
		{"an empty one", control.HTTPSIfForwarded, control.Proxies{}, []string{" "}, "/v1/keys", true},
		{"not forwarded", control.HTTPSIfForwarded, control.Proxies{}, nil, "/v1/keys", false},
		{"health too", control.HTTPSIfForwarded, control.Proxies{}, []string{"http"}, "/v1/health", true},
		{"strict", control.HTTPSStrict, control.Proxies{}, nil, "/v1/keys", true},
		{"strict, and anybody says https", control.HTTPSStrict, control.Proxies{}, []string{"https"}, "/v1/keys", true},
		{"strict, and a trusted proxy says https", control.HTTPSStrict, trusted, []string{"https"}, "/v1/keys", false},
		{"strict, and a trusted proxy says http", control.HTTPSStrict, trusted, []string{"https, http"}, "/v1/keys", true},
		{"strict, and a trusted proxy says nothing", control.HTTPSStrict, trusted, nil, "/v1/keys", true},
		{"strict, and the outer proxy says https", control.HTTPSStrict, outer, []string{"https, http"}, "/v1/keys", false},
		{"strict, and too few proxies have said it", control.HTTPSStrict, outer, []string{"https"}, "/v1/keys", true},
		{"strict, but not of health", control.HTTPSStrict, control.Proxies{}, nil, "/v1/health", false},
		{"strict, but not of ready", control.HTTPSStrict, control.Proxies{}, nil, "/v1/ready", false},
		{"strict, of the document", control.HTTPSStrict, control.Proxies{}, nil, "/v1/openapi.json", true},
	} {
		t.Run(c.what, func(t *testing.T) {
			x := serve(t, new(memory.Store), func(cfg *control.Config) { cfg.HTTPS, cfg.Proxies = c.https, c.proxies })
			var header []string
			for _, h := range c.header {
				header = append(header, "X-Forwarded-Proto", h)
			}
			r := x.do("GET", c.path, adminSecret, nil, header...)
			if c.refused {
				r.fails(400, "https_required").says("HTTPS is required")
			} else {
				r.is(200)
			}
		})
	}
}

// HTTP-92: TLS is https.
func TestStrictTLS(t *testing.T) {
	x := planeOn(t, new(memory.Store), func(c *control.Config) { c.HTTPS = control.HTTPSStrict })
	srv := httptest.NewTLSServer(x.plane)
	defer srv.Close()
	x.url, x.client = srv.URL, srv.Client()
	x.do("GET", "/v1/keys", adminSecret, nil).is(200)
}

// A forwarded address counts only from a trusted proxy, and only the element that a proxy has written.
func TestForwardedAddress(t *testing.T) {
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	for _, c := range []struct {
		what    string
		proxies control.Proxies
		header  []string
		want    string
	}{
		{"nobody is trusted", control.Proxies{}, []string{"203.0.113.9"}, "127.0.0.1"},
		{"the peer is not trusted", control.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, []string{"203.0.113.9"}, "127.0.0.1"},
		{"one proxy", control.Proxies{Trusted: local}, []string{"203.0.113.9"}, "203.0.113.9"},
		{"what the client wrote before", control.Proxies{Trusted: local, Hops: 1}, []string{"1.1.1.1, 203.0.113.9"}, "203.0.113.9"},
		{"in headers of its own", control.Proxies{Trusted: local, Hops: 1}, []string{"1.1.1.1", "203.0.113.9"}, "203.0.113.9"},
		{"two proxies", control.Proxies{Trusted: local, Hops: 2}, []string{"1.1.1.1, 203.0.113.9, 10.0.0.1"}, "203.0.113.9"},
		{"too few elements", control.Proxies{Trusted: local, Hops: 2}, []string{"203.0.113.9"}, "127.0.0.1"},
		{"no address", control.Proxies{Trusted: local}, []string{"unknown"}, "127.0.0.1"},
		{"with a port", control.Proxies{Trusted: local}, []string{"203.0.113.9:8080"}, "203.0.113.9"},
		{"IPv6", control.Proxies{Trusted: local}, []string{"[2001:db8::1]:80"}, "2001:db8::1"},
	} {
		t.Run(c.what, func(t *testing.T) {
			x := serve(t, new(memory.Store), func(cfg *control.Config) { cfg.Proxies = c.proxies })
			q, err := http.NewRequest("GET", x.url+"/v1/keys", nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Authorization", "Bearer "+adminSecret)
			q.Header["X-Forwarded-For"] = c.header
			x.send(q).is(200)
			if got := x.audit(adminSecret, "action=keys.list", 1)[0]["ip"]; got != c.want {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}
