package main

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/weft-go/weft"
	remote "github.com/weft-go/weft/client"
	"github.com/weft-go/weft/control"
)

// A plane says which control plane a verb calls.
type plane struct {
	URL       string `name:"url" env:"WEFT_URL" placeholder:"URL" help:"The control plane, such as https://shop.internal."`
	KeyFile   string `type:"path" placeholder:"FILE" help:"A file with the secret of the key, or with keys as weft serve reads them; only you may be able to read it. By default WEFT_KEY has the secret."`
	PlainHTTP bool   `name:"plain-http" help:"Send the key to another machine by http. Everybody on the way can read it."`
}

// client returns a client of the control plane, which notes what it repeats.
func (p plane) client(e *env) (*remote.Client, error) {
	if p.URL == "" {
		return nil, misuse("no control plane is named: give --url, or set WEFT_URL")
	}
	secret, err := secretOf(p.KeyFile)
	if err != nil {
		return nil, err
	}
	return remote.New(p.URL, secret, &remote.Options{PlainHTTP: p.PlainHTTP, Transport: &retelling{next: http.DefaultTransport, note: e.note}})
}

// patience is how long the command repeats a request in silence.
const patience = 700 * time.Millisecond

// retelling is a transport that notes once that a request is repeated, and why. It serves one call after the other.
type retelling struct {
	next http.RoundTripper
	note func(format string, args ...any)

	failed time.Time // when the first attempt of a request failed; zero: none has
	why    string
	noted  bool
}

func (r *retelling) RoundTrip(q *http.Request) (*http.Response, error) {
	if !r.failed.IsZero() && !r.noted && time.Since(r.failed) >= patience {
		r.noted = true
		r.note("%s %s; trying again for a while", q.URL.Host, text(r.why))
	}
	a, err := r.next.RoundTrip(q)
	switch {
	case err != nil:
		r.why = "does not answer: " + err.Error()
	case a.StatusCode == http.StatusTooManyRequests || a.StatusCode >= 500:
		r.why = "answers " + a.Status
	default:
		r.failed = time.Time{}
		return a, nil
	}
	if r.failed.IsZero() {
		r.failed = time.Now()
	}
	return a, err
}

// remotely calls f with a client of the control plane.
func (e *env) remotely(p plane, f func(c *remote.Client) error) error {
	c, err := p.client(e)
	if err != nil {
		return err
	}
	return f(c)
}

// ownKeys is how the ids of the keys begin that newOwnKey makes.
const ownKeys = "weft-command-"

// newOwnKey returns a key with which this command works on a store. Its id is its own, so that another
// process does not revoke it.
func newOwnKey() control.Key {
	return control.Key{ID: ownKeys + rand.Text()[:8], Secret: newSecret(), Scopes: []string{"admin"}, ExpiresAt: time.Now().Add(time.Minute)}
}

// onStore calls f with a client of a control plane on the store with this home, in this process. So the first key can
// be made, and one when all are lost. What f does is in the audit trail, under a key that
// is revoked afterwards.
func (e *env) onStore(home control.Namespace, f func(c *remote.Client) error) error {
	return e.writing(func(c *client) error {
		own := newOwnKey()
		p, err := control.New(control.Config{
			Engine: c.Engine,
			Keys:   []control.Key{own},
			Home:   home,
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return err
		}
		defer p.Close()
		inside, err := remote.New("http://localhost", own.Secret, &remote.Options{Transport: handled{http: p}})
		if err != nil {
			return err
		}
		err = f(inside)
		if revoked := inside.RevokeKey(e, own.ID, "", ""); err == nil {
			err = revoked
		}
		return err
	})
}

// handled is a transport to a handler in this process.
type handled struct {
	http   http.Handler
	secure bool // a request counts as one by TLS
}

func (h handled) RoundTrip(q *http.Request) (*http.Response, error) {
	in := q.Clone(q.Context())
	in.RequestURI = q.URL.RequestURI()
	in.Host = q.URL.Host
	in.RemoteAddr = "127.0.0.1:0"
	if h.secure { // it leaves no machine
		in.TLS = &tls.ConnectionState{}
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	a := &answer{header: http.Header{}, status: http.StatusOK}
	h.http.ServeHTTP(a, in)
	return &http.Response{
		StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: q,
		Header: a.header, Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()),
	}, nil
}

// An answer is that of a handler.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
	sent   bool
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if !a.sent {
		a.status, a.sent = status, true
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.sent = true
	return a.body.Write(p)
}

func (a *answer) SetReadDeadline(time.Time) error  { return nil }
func (a *answer) SetWriteDeadline(time.Time) error { return nil }

// sure is who acts, for verbs over a control plane: it records the key as the actor.
type sure struct {
	Reason string `placeholder:"TEXT" help:"Why. The history and the audit trail keep it."`
}

func (s sure) by() weft.Actor { return weft.Actor{Reason: s.Reason} }
