package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage/memory"
)

// A oneConn is a listener that accepts one connection.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error   { close(l.closed); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// A part that ends because weft serve is told to stop has not ended by itself, whichever is noticed first. About one round in
// a thousand notices the part first.
func TestServeIsToldToStopAtOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	rounds := 4000
	if testing.Short() {
		rounds = 100
	}
	for range rounds {
		eng, err := engine.New(engine.Config{Storage: new(memory.Store), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		p, err := control.New(control.Config{Engine: eng, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		s := &serve{StopTimeout: time.Minute}
		if err := s.until(&env{Context: ctx, notes: io.Discard}, &oneConn{make(chan net.Conn), make(chan struct{})}, p, eng); err != nil {
			t.Fatal(err)
		}
		eng.Close()
	}
}

// A client that sends its head slowly has 10 s, and one that sends nothing, too: then the connection ends.
func TestSlowHeads(t *testing.T) {
	for what, head := range map[string]string{"nothing": "", "a part": "GET /v1/health HTTP/1.1\r\nHost: x\r\n", "a byte a second": "GET /v1/health HTTP/1.1\r\nHost: x\r\nX: "} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was served") }), io.Discard)
				l := &oneConn{make(chan net.Conn, 1), make(chan struct{})}
				ours, theirs := net.Pipe()
				defer ours.Close()
				l.conn <- theirs
				ended := make(chan struct{})
				go func() { defer close(ended); server.Serve(l) }()
				var writer sync.WaitGroup
				writer.Go(func() {
					io.WriteString(ours, head)
					for what == "a byte a second" {
						time.Sleep(time.Second)
						if _, err := io.WriteString(ours, "x"); err != nil {
							return
						}
					}
				})
				began := time.Now()
				ours.SetReadDeadline(began.Add(time.Minute))
				if _, err := io.Copy(io.Discard, ours); errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > 11*time.Second {
					t.Errorf("the connection ended after %v, %v, want 10 s", time.Since(began), err)
				}
				ours.Close() // ends the writer, which may sleep
				writer.Wait()
				server.Close()
				<-ended
			})
		})
	}
}
