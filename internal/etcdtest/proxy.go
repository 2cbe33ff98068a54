package etcdtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
)

// A Proxy forwards connections to a member.
type Proxy struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	allow  func(from string) bool // nil allows all
	see    func(message []byte) Action
	wires  map[*wire]bool
	closed bool
	going  sync.WaitGroup
}

// An Action is what a proxy does with a message of a client.
type Action int

const (
	Pass      Action = iota
	CutBefore        // the server does not receive it
	CutAfter         // the server receives it, and its client is gone
	LoseReply        // the server answers it, and the answer is lost
)

// A wire is a connection through a proxy.
type wire struct {
	client, server net.Conn
	from           string // the member that connects, if it is one
	mu             sync.Mutex
	losing         bool
}

func newProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, wires: map[*wire]bool{}}
	p.going.Go(p.accept)
	return p, nil
}

// Addr returns the address at which the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Allow cuts the connections from members that f does not allow, and refuses new ones. Nil allows
// all. A member is named by its ID as it is in requests.
func (p *Proxy) Allow(f func(from string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allow = f
	for w := range p.wires {
		if f != nil && !f(w.from) {
			w.cut()
		}
	}
}

// On sets the function that decides about each piece of a message that a client sends over
// HTTP/2 without TLS. It is called for one at a time.
func (p *Proxy) On(see func(message []byte) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.see = see
}

// Cut cuts all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.wires {
		w.cut()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.Cut()
	p.going.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.going.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		client.Close()
		return
	}
	w := &wire{client: client, server: server}
	defer w.cut()
	if !p.add(w) { // so that closing the proxy cuts it
		return
	}
	defer p.drop(w)
	from := bufio.NewReaderSize(client, 64<<10)
	start, err := from.Peek(len(preface))
	switch {
	case err != nil:
		return
	case string(start) == preface:
		var both sync.WaitGroup
		both.Go(func() { defer w.cut(); p.forward(w, from) })
		both.Go(func() { defer w.cut(); w.back() })
		both.Wait()
		return
	case start[0] < 'A' || start[0] > 'Z': // TLS
	case !p.know(w, sender(from)):
		return
	}
	var both sync.WaitGroup
	both.Go(func() { defer w.cut(); io.Copy(server, from) })
	both.Go(func() { defer w.cut(); io.Copy(client, server) })
	both.Wait()
}

func (p *Proxy) add(w *wire) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wires[w] = true
	return !p.closed
}

func (p *Proxy) drop(w *wire) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.wires, w)
}

// know notes which member is at the other end, and reports whether it is allowed.
func (p *Proxy) know(w *wire, from string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.from = from
	return p.allow == nil || p.allow(from)
}

// sender returns the member that sends the HTTP request with which a connection begins. All
// requests of a connection are from the same.
func sender(r *bufio.Reader) string {
	for more := 1; ; {
		if _, err := r.Peek(more); err != nil {
			return ""
		}
		start, _ := r.Peek(r.Buffered())
		if end := bytes.Index(start, []byte("\r\n\r\n")); end >= 0 {
			_, rest, _ := bytes.Cut(start[:end+2], []byte("\r\nX-Server-From: "))
			from, _, _ := bytes.Cut(rest, []byte("\r\n"))
			return string(from)
		}
		more = len(start) + 1
	}
}

func (w *wire) cut() {
	w.client.Close()
	w.server.Close()
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// forward forwards the frames that the client sends after the preface.
func (p *Proxy) forward(w *wire, from io.Reader) {
	if _, err := io.CopyN(w.server, from, int64(len(preface))); err != nil {
		return
	}
	for {
		kind, frame, err := readFrame(from)
		if err != nil {
			return
		}
		do := Pass
		if kind == data {
			p.mu.Lock()
			if p.see != nil {
				do = p.see(frame[header:])
			}
			p.mu.Unlock()
		}
		if do == CutBefore {
			return
		}
		if do == LoseReply {
			w.mu.Lock()
			w.losing = true
			w.mu.Unlock()
		}
		if _, err := w.server.Write(frame); err != nil || do == CutAfter {
			return
		}
	}
}

// back forwards what the server sends. If an answer is to be lost, it cuts the connection when
// that arrives.
func (w *wire) back() {
	for {
		kind, frame, err := readFrame(w.server)
		if err != nil {
			return
		}
		w.mu.Lock()
		losing := w.losing
		w.mu.Unlock()
		if losing && kind == data {
			return
		}
		if losing {
			continue
		}
		if _, err := w.client.Write(frame); err != nil {
			return
		}
	}
}

// Frames of HTTP/2: a header with the length and the type, and the content.
const (
	header      = 9
	data   byte = 0
)

func readFrame(r io.Reader) (kind byte, frame []byte, err error) {
	frame = make([]byte, header)
	if _, err := io.ReadFull(r, frame); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(append([]byte{0}, frame[:3]...))
	frame = append(frame, make([]byte, size)...)
	_, err = io.ReadFull(r, frame[header:])
	return frame[3], frame, err
}
