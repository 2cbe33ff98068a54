// Http is a service that others start and signal workflows in, over HTTP. A build of it is rolled out
// and back, while orders are in progress.
//
//	go run ./examples/http
//
// service.go is what a user of Weft writes: it mounts a control plane beside the service's own pages.
// The program starts that service twice on one store, as a rolling release does: the build shop-1, and
// then shop-2, which asks for another signature. It is also their client, with package client.
//
// Each order stays on the build on which it began, also after the roll-back: its code is the one that
// its history was made with. At the end the program prints who activated what, from the audit trail.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/weft-go/weft/client"
	"github.com/weft-go/weft/engine"
	wsignal "github.com/weft-go/weft/signal"
)

func main() {
	db := flag.String("db", "", "the file that keeps the orders; a temporary one by default")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *db, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "http:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db string, out io.Writer) error {
	if db == "" {
		dir, err := os.MkdirTemp("", "weft-http-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		db = filepath.Join(dir, "shop.db")
	}
	secret := rand.Text() // in a service: from a file or the environment

	first, err := newService(db, "shop-1", secret)
	if err != nil {
		return err
	}
	defer first.close()
	c, err := client.New(first.url(), secret, nil)
	if err != nil {
		return err
	}
	s := &story{ctx: ctx, out: out}
	s.release(c, "shop-1", client.IfNoneActive())
	s.order(c, "order-1")

	second, err := newService(db, "shop-2", secret)
	if err != nil {
		return err
	}
	defer second.close()
	c2, err := client.New(second.url(), secret, nil)
	if err != nil {
		return err
	}
	s.release(c2, "shop-2", client.IfActive("shop-1"))
	s.order(c2, "order-2")
	s.order(c, "order-3") // whichever process is asked
	s.back(c, "shop-1", client.IfActive("shop-2"))
	s.order(c2, "order-4")

	for _, id := range []string{"order-1", "order-2", "order-3", "order-4"} {
		s.sign(c, id, "ann")
		if id == "order-2" || id == "order-3" { // shop-2 asks for two
			s.sign(c, id, "bob")
		}
		s.receipt(c2, id)
	}
	s.trail(c)
	return s.err
}

// A story is what a client does, and prints, until something fails.
type story struct {
	ctx context.Context
	out io.Writer
	err error
}

func (s *story) do(f func() (string, error)) {
	if s.err != nil {
		return
	}
	line, err := f()
	if err != nil {
		s.err = err
		return
	}
	fmt.Fprintln(s.out, line)
}

// release records a build, and has new orders start on it.
func (s *story) release(c *client.Client, build string, expected client.Expected) {
	s.do(func() (string, error) {
		manifest := fmt.Appendf(nil, `{"deploymentId": %q, "workflows": [{"name": "checkout"}]}`, build)
		if _, err := c.CreateDeployment(s.ctx, manifest, nil); err != nil {
			return "", err
		}
		_, err := c.Activate(s.ctx, build, expected, engine.Actor{Reason: "release of " + build})
		return build + " is active.", err
	})
}

// back has new orders start on an earlier build again.
func (s *story) back(c *client.Client, build string, expected client.Expected) {
	s.do(func() (string, error) {
		_, err := c.Activate(s.ctx, build, expected, engine.Actor{Reason: "customers complain"})
		return build + " is active again.", err
	})
}

// order starts an order on the active build.
func (s *story) order(c *client.Client, id string) {
	s.do(func() (string, error) {
		if _, err := checkout.Start(s.ctx, c, id, Cart{Cents: 4900}); err != nil {
			return "", err
		}
		run, err := c.Get(s.ctx, id)
		return fmt.Sprintf("  %s begins on %s.", id, run.DeploymentID), err
	})
}

// sign sends a signature.
func (s *story) sign(c *client.Client, id, by string) {
	s.do(func() (string, error) {
		_, err := signed.Send(s.ctx, c, id, by, &wsignal.Options{ID: "signature of " + by})
		return fmt.Sprintf("  %s signs %s.", by, id), err
	})
}

// receipt waits for the end of an order.
func (s *story) receipt(c *client.Client, id string) {
	s.do(func() (string, error) {
		r, err := checkout.Handle(c, id).Result(s.ctx)
		return fmt.Sprintf("%s was handled by %s, and signed by %v.", id, r.Build, r.Signed), err
	})
}

// trail prints who activated what, from the oldest.
func (s *story) trail(c *client.Client) {
	s.do(func() (string, error) {
		p, err := c.Audit(s.ctx, client.AuditFilter{Action: "deployments.activate", Result: "success"}, engine.PageRequest{})
		text := "The audit trail:"
		for i := len(p.Data) - 1; i >= 0; i-- {
			text += fmt.Sprintf("\n  %s: %s: %s", p.Data[i].KeyID, p.Data[i].Resource, p.Data[i].Metadata.Reason)
		}
		return text, err
	})
}
