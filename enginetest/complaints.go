package enginetest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// complaints is a testing.TB that records messages. It overrides only what concerns
// failure.
type complaints struct {
	testing.TB

	mu     sync.Mutex
	said   []string
	failed bool
}

func (c *complaints) say(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, strings.Split(strings.TrimRight(s, "\n"), "\n")...)
}

func (c *complaints) Fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = true
}

func (c *complaints) Failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

func (c *complaints) FailNow() {
	c.Fail()
	runtime.Goexit()
}

func (c *complaints) Helper()                   {}
func (c *complaints) Log(args ...any)           { c.say(fmt.Sprintln(args...)) }
func (c *complaints) Logf(f string, a ...any)   { c.say(fmt.Sprintf(f, a...)) }
func (c *complaints) Error(args ...any)         { c.Log(args...); c.Fail() }
func (c *complaints) Errorf(f string, a ...any) { c.Logf(f, a...); c.Fail() }
func (c *complaints) Fatal(args ...any)         { c.Log(args...); c.FailNow() }
func (c *complaints) Fatalf(f string, a ...any) { c.Logf(f, a...); c.FailNow() }
