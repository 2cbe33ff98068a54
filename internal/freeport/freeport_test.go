package freeport

import (
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// No connection gets a port that Find returns.
func TestPortsAreNoneOfConnections(t *testing.T) {
	lowest := 49_152
	if runtime.GOOS == "linux" {
		text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
		if err != nil {
			t.Fatal(err)
		}
		if lowest, err = strconv.Atoi(strings.Fields(string(text))[0]); err != nil {
			t.Fatal(err)
		}
	}
	for range 1_000 {
		port, err := Find()
		if err != nil {
			t.Fatal(err)
		}
		if port >= lowest {
			t.Fatalf("port %d: connections get ports from %d on", port, lowest)
		}
	}
}

func TestPortsAreFreeAndDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		port, err := Find()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d came twice", port)
		}
		seen[port] = true
		l, err := net.Listen("tcp", Address(port))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
}
