// Package freeport finds TCP ports for servers that tests start as processes of their own.
//
// A listener at port 0 gets a port that the operating system also gives to outgoing connections. Once
// that listener is closed, any connection of the machine may get its port before the server does, or
// while the server is down for a moment. The ports of this package are below those of connections.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The operating systems that tests run on give connections ports from 32768 on (Linux) or from 49152 on.
const first, end = 10_000, 32_768

var taken struct {
	sync.Mutex
	ports map[int]bool
}

// Find returns a port at which nobody listens on 127.0.0.1. It returns none twice in one process, and
// chooses at random, so that two processes hardly ever find the same one at the same time.
func Find() (int, error) {
	taken.Lock()
	defer taken.Unlock()
	if taken.ports == nil {
		taken.ports = map[int]bool{}
	}
	var err error
	for range 1_000 {
		port := first + rand.IntN(end-first)
		if taken.ports[port] {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", Address(port)); err != nil {
			continue
		}
		taken.ports[port] = true
		return port, l.Close()
	}
	return 0, fmt.Errorf("freeport: no port from %d to %d is free: %w", first, end-1, err)
}

// Address returns the address of a port on this machine.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
