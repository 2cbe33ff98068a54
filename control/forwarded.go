package control

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/weft-go/weft/control/internal/operation"
)

// A peer is where a request comes from.
type peer struct {
	address netip.Addr // of the client; invalid: not known
	https   bool       // by TLS, or by the word of a trusted proxy
}

// peerOf returns where a request comes from. What its header says counts only if the connection is of
// a trusted proxy.
func (p Proxies) peerOf(r *http.Request) peer {
	from := peer{address: addressOf(r.RemoteAddr), https: r.TLS != nil}
	if !p.trusts(from.address) {
		return from
	}
	if a := addressOf(p.element(r.Header["X-Forwarded-For"])); a.IsValid() {
		from.address = a
	}
	if strings.EqualFold(p.element(r.Header["X-Forwarded-Proto"]), "https") {
		from.https = true
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

// secure returns a problem if a request did not come by https as it must.
func (p *Plane) secure(r *http.Request, op *operation.Operation, from peer) *operation.Problem {
	bad := operation.NewProblem(http.StatusBadRequest, "https_required", "HTTPS is required")
	switch p.config.HTTPS {
	case HTTPSIfForwarded:
		lines := r.Header["X-Forwarded-Proto"]
		if len(lines) == 0 {
			return nil
		}
		first, _, _ := strings.Cut(lines[0], ",")
		if !strings.EqualFold(strings.Trim(first, " \t"), "https") {
			return bad
		}
	case HTTPSStrict:
		if !from.https && !op.Unsecured {
			return bad
		}
	}
	return nil
}
