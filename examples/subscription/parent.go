package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weft-go/weft/internal/childproc"
)

// A parent starts and kills the service, and records its output.
type parent struct {
	options
	address, bank string
	programs      [3]string // by release
	random        *rand.Rand
	killed        int
	last          int             // the last customer who has subscribed
	outcomes      map[int]outcome // of the customers who have cancelled
}

// stall is how long the service may run without printing anything. What has ended is removed within about a
// minute of its time.
const stall = 3 * time.Minute

// build builds a release of the service.
func (p *parent) build(ctx context.Context, dir string, release int) error {
	p.programs[release] = filepath.Join(dir, "release-"+strconv.Itoa(release))
	cmd := exec.CommandContext(ctx, "go", "build", "-o", p.programs[release], "-ldflags", "-X main.release="+strconv.Itoa(release),
		"github.com/weft-go/weft/examples/subscription")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build release %d: %w\n%s", release, err, out)
	}
	return nil
}

// torture kills services of a release until so many were killed.
func (p *parent) torture(ctx context.Context, release, kills int) error {
	for p.killed < kills {
		if err := p.life(ctx, release, goOn); err != nil {
			return err
		}
	}
	return nil
}

func (p *parent) plan(a aim) plan {
	l := plan{Store: p.store, Address: p.address, Bank: p.bank, Customers: p.customers, Month: p.month, Next: p.last + 1, Aim: a}
	for n := 1; n <= p.last; n++ {
		if _, ended := p.outcomes[n]; !ended {
			l.Open = append(l.Open, n)
		}
	}
	return l
}

// life is one process of the service, from its start to its death or, if it has an end, that end. It is
// killed some time after it has begun to work.
func (p *parent) life(ctx context.Context, release int, a aim) error {
	service := childproc.Child{
		Program: p.programs[release], Env: serviceEnv, Plan: p.plan(a), Stall: stall,
		Hear: func(line string) (after time.Duration, kill bool) {
			if works := p.hear(line); !works || a != goOn {
				return 0, false
			}
			return time.Duration(p.random.Int64N(int64(p.span))), true
		},
	}
	killed, err := service.Run(ctx)
	if killed {
		p.killed++
		return nil
	}
	if err != nil || a == goOn {
		return fmt.Errorf("the service ended by itself, and was to %s: %v", a, err)
	}
	return nil
}

// hear records that a customer subscribes, or what a customer has seen at the end. It reports whether the
// line says that the service works.
func (p *parent) hear(line string) (works bool) {
	number, said, ended := strings.Cut(line, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return false
	}
	p.last = max(p.last, n)
	var o outcome
	if ended && json.Unmarshal([]byte(said), &o) == nil {
		p.outcomes[n] = o
	}
	return n == 0
}
