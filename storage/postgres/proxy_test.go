package postgres_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// A proxy forwards connections between a store and the server, and inspects each message
// of the store.
type proxy struct {
	listener net.Listener
	server   string

	// see decides what to do with each message, one at a time.
	mu  sync.Mutex
	see func(m message) action

	going sync.WaitGroup
	conns sync.Map
}

// A message is one from the client. Its kind is the protocol's message type, or 0 for the
// first message of a connection.
type message struct {
	conn *wire
	kind byte
	body []byte
}

// binds reports whether the message starts to execute a prepared statement.
func (m message) binds(statement string) bool {
	_, name, _ := bytes.Cut(m.body, []byte{0})
	name, _, _ = bytes.Cut(name, []byte{0})
	return m.kind == 'B' && string(name) == statement
}

// commits reports whether the server commits after the message.
func (m message) commits() bool {
	return m.binds("weft_commit") || m.binds("weft_insertIf") || m.binds("weft_replaceIf") || m.binds("weft_swap")
}

type action int

const (
	pass      action = iota
	cutBefore        // the server does not receive it
	cutAfter         // the server receives it, and its client is gone
	loseReply        // the server receives it and what follows, and the answer is lost
	swallow          // the server receives nothing more on this connection, which stays open
)

// A wire is a connection through the proxy.
type wire struct {
	client, server net.Conn
	mu             sync.Mutex
	losing, deaf   bool
}

func newProxy(t testing.TB, server string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, server: server}
	p.going.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.cutAll()
		p.going.Wait()
	})
	return p
}

// url returns the address of a database through the proxy.
func (p *proxy) url(t testing.TB, direct string) string {
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.listener.Addr().String()
	return u.String()
}

// on sets the function that decides about messages. When it returns, the previous function
// is no longer running.
func (p *proxy) on(see func(message) action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.see = see
}

func (p *proxy) cutAll() {
	p.conns.Range(func(w, _ any) bool { w.(*wire).cut(); return true })
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			client.Close()
			continue
		}
		w := &wire{client: client, server: server}
		p.conns.Store(w, nil)
		p.going.Go(func() { p.forward(w) })
		p.going.Go(func() { w.back(); p.conns.Delete(w) })
	}
}

func (w *wire) cut() {
	w.client.Close()
	w.server.Close()
}

// forward forwards the client's messages.
func (p *proxy) forward(w *wire) {
	defer w.cut()
	for first := true; ; first = false {
		m, raw, err := read(w.client, first)
		if err != nil {
			return
		}
		m.conn = w
		p.mu.Lock()
		do := pass
		if p.see != nil {
			do = p.see(m)
		}
		p.mu.Unlock()
		w.mu.Lock()
		w.losing = w.losing || do == loseReply
		w.deaf = w.deaf || do == swallow
		deaf := w.deaf
		w.mu.Unlock()
		if do == cutBefore {
			return
		}
		if deaf {
			continue
		}
		if _, err := w.server.Write(raw); err != nil || do == cutAfter {
			return
		}
	}
}

// back forwards the server's messages. An answer that is to be lost is read to its end and
// dropped.
func (w *wire) back() {
	defer w.cut()
	for {
		m, raw, err := read(w.server, false)
		if err != nil {
			return
		}
		w.mu.Lock()
		losing := w.losing
		w.mu.Unlock()
		if losing && m.kind == 'Z' {
			return
		}
		if losing {
			continue
		}
		if _, err := w.client.Write(raw); err != nil {
			return
		}
	}
}

func read(r io.Reader, first bool) (m message, raw []byte, err error) {
	head := make([]byte, 5)
	if first {
		head = head[1:]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return m, nil, err
	}
	size := head
	if !first {
		m.kind, size = head[0], head[1:]
	}
	m.body = make([]byte, binary.BigEndian.Uint32(size)-4)
	_, err = io.ReadFull(r, m.body)
	return m, append(head, m.body...), err
}

func address(t testing.TB, direct string) string {
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// proxied returns a proxy in front of a database, and the database's address through it.
func proxied(t testing.TB, direct string) (*proxy, string) {
	p := newProxy(t, address(t, direct))
	return p, p.url(t, direct)
}
