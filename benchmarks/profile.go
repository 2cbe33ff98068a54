package main

import (
	"fmt"
	"os"
	"runtime/pprof"
)

// profile writes what the process does from now on, warming up included, to
// files that begin with name, if it is not empty.
func profile(name string) (done func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	cpu, err := os.Create(name + ".cpu")
	if err == nil {
		err = pprof.StartCPUProfile(cpu)
	}
	if err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		err := cpu.Close()
		if allocs, e := os.Create(name + ".allocs"); e == nil {
			err = pprof.Lookup("allocs").WriteTo(allocs, 0)
			allocs.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "profile:", err)
		}
	}, nil
}
