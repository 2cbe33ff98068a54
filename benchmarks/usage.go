package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

// A usage is what the process has used so far.
type usage struct {
	mallocs, bytes uint64
	processor      time.Duration
	calls, written int64 // of write(2); to the disk
	commits        int64
}

func usageOf(sys System) usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := usage{mallocs: m.Mallocs, bytes: m.TotalAlloc, processor: processorTime(), commits: commitsOf(sys)}
	u.calls, _ = procField("/proc/self/io", "syscw")
	u.written, _ = procField("/proc/self/io", "write_bytes")
	return u
}

// report reports what was used since u for each of so many steps. What a server
// uses is not in it.
func (u usage) report(c *Child, now usage, steps float64) {
	c.report("allocations/step", float64(now.mallocs-u.mallocs)/steps)
	c.report("allocated B/step", float64(now.bytes-u.bytes)/steps)
	c.report("CPU µs/step", float64((now.processor-u.processor).Microseconds())/steps)
	if now.calls > u.calls {
		c.report("write calls/step", float64(now.calls-u.calls)/steps)
		c.report("written to disk B/step", float64(now.written-u.written)/steps)
	}
	if now.commits > u.commits {
		c.report("batches/step", float64(now.commits-u.commits)/steps)
	}
}

func commitsOf(sys System) int64 {
	if s, ok := sys.(Committer); ok {
		return s.Commits()
	}
	return 0
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// processorTime is what the process has used of all cores.
func processorTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// resident is the memory of the process that is not swapped or given back.
func resident() (int64, bool) {
	kib, ok := procField("/proc/self/status", "VmRSS")
	return kib << 10, ok
}

// procField reads a number out of a file of lines "name: number ...". There are
// such files on Linux.
func procField(file, name string) (n int64, ok bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(data) {
		if value, found := bytes.CutPrefix(line, []byte(name+":")); found {
			_, err := fmt.Sscan(string(value), &n)
			return n, err == nil
		}
	}
	return 0, false
}
