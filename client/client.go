package client

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/weft-go/weft"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/stream"
)

// A Client calls one control plane with one key. It is safe for concurrent use. It keeps no
// goroutines, and idle connections only as its Transport does.
type Client struct {
	engine.UnimplementedClient
	base      string // without a slash at its end
	authorize func(http.Header)
	http      *http.Client
	codecs    map[string]weft.Codec
	attempt   time.Duration // how long an attempt may take, beside what it asks the server to wait
	random    func(below time.Duration) time.Duration
}

var (
	_ engine.Client = (*Client)(nil)
	_ stream.Source = (*Client)(nil)
)

// Options are for New. The zero value is right for most programs.
type Options struct {
	// Transport sends the requests. Nil is http.DefaultTransport. It must not retry what may have
	// been received.
	Transport http.RoundTripper

	// Codecs decode results that were not encoded as JSON.
	Codecs []weft.Codec

	// PlainHTTP permits an address with http that is not of this machine, for example that of a
	// proxy that adds TLS. Everybody on the way can read the key.
	PlainHTTP bool
}

// New returns a client of the control plane at address, such as "https://shop.internal". If the
// service serves it below a path, the address has that path. key is the secret of an API key. New
// does not connect. Its errors are engine.ErrInvalid: an address with anything but a scheme, a host
// and a path; http to another machine without Options.PlainHTTP; a key that is empty or not
// visible ASCII.
func New(address, key string, o *Options) (*Client, error) {
	if o == nil {
		o = &Options{}
	}
	base, err := parseAddress(address, o.PlainHTTP)
	if err != nil {
		return nil, err
	}
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("%w: the key of a client must be 1 or more visible ASCII characters", weft.ErrInvalid)
	}
	c := &Client{
		base:      base,
		authorize: func(h http.Header) { h.Set("Authorization", "Bearer "+key) }, // not a field: fmt would print it
		http: &http.Client{
			Transport:     o.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		codecs:  map[string]weft.Codec{},
		attempt: 10 * time.Second,
		random:  jitter,
	}
	for _, codec := range o.Codecs {
		c.codecs[codec.Name()] = codec
	}
	return c, nil
}

// Address returns the address of the control plane.
func (c *Client) Address() string { return c.base }

// parseAddress checks the address of a control plane. Its errors do not show it: it may contain a
// password.
func parseAddress(address string, plain bool) (string, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("%w: the address of a control plane is https://HOST or https://HOST/PATH, or http:// on this machine; the one that was given has no such beginning", weft.ErrInvalid)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return "", fmt.Errorf("%w: the address of a control plane has no user, query or fragment: the key is an argument of its own", weft.ErrInvalid)
	case u.Scheme == "http" && !plain && !loopback(u.Hostname()):
		return "", fmt.Errorf("%w: http to %s would show the key to everybody on the way: use https, or Options.PlainHTTP if something else protects it", weft.ErrInvalid, u.Host)
	}
	return u.Scheme + "://" + u.Host + strings.TrimSuffix(u.EscapedPath(), "/"), nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
