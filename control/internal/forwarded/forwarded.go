// Package forwarded finds out where a request comes from that proxies may have forwarded.
package forwarded

import (
	"net/http"
	"net/netip"
	"strings"
)

// Proxies says whose forwarded headers count: control.Proxies.
type Proxies struct {
	Trusted []netip.Prefix
	Hops    int
}

// A Peer is where a request comes from.
type Peer struct {
	Address netip.Addr // of the client; invalid: not known
	HTTPS   bool       // by TLS, or by the word of a trusted proxy
}

// Peer returns where a request comes from. What its header says counts only if the connection is of
// a trusted proxy.
func (p Proxies) Peer(r *http.Request) Peer {
	from := Peer{Address: addressOf(r.RemoteAddr), HTTPS: r.TLS != nil}
	if !p.trusts(from.Address) {
		return from
	}
	if a := addressOf(p.element(r.Header["X-Forwarded-For"])); a.IsValid() {
		from.Address = a
	}
	if strings.EqualFold(p.element(r.Header["X-Forwarded-Proto"]), "https") {
		from.HTTPS = true
	}
	return from
}

func (p Proxies) trusts(a netip.Addr) bool {
	for _, prefix := range p.Trusted {
		if a.IsValid() && prefix.Contains(a.WithZone("")) {
			return true
		}
	}
	return false
}

// element returns the element of a list that the outermost proxy has written: Hops from the right. It is
// empty if the list is shorter.
func (p Proxies) element(lines []string) string {
	list := strings.Split(strings.Join(lines, ","), ",")
	hops := max(p.Hops, 1)
	if hops > len(list) {
		return ""
	}
	return strings.Trim(list[len(list)-hops], " \t")
}

// addressOf returns the address in a text like 192.0.2.1, 192.0.2.1:80, 2001:db8::1 or [2001:db8::1]:80.
func addressOf(s string) netip.Addr {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Unmap()
	}
	if a, err := netip.ParseAddrPort(s); err == nil {
		return a.Addr().Unmap()
	}
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil && strings.HasPrefix(s, "[") {
		return a.Unmap()
	}
	return netip.Addr{}
}
