package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/signal"
	"github.com/weft-go/weft/storage/sqlite"
)

// A Cart is the input of checkout.
type Cart struct {
	Cents int `json:"cents"`
}

// A Receipt is the result of checkout.
type Receipt struct {
	Build  string   `json:"build"`
	Signed []string `json:"signed"`
}

var (
	signed = &signal.Signal[string]{Name: "signed"}

	// checkout has no function: it is what a client needs to know.
	checkout = &engine.Workflow[Cart, Receipt]{Name: "checkout"}
)

// checkoutOf is the workflow as a build has it. The code of shop-2 waits for two signatures, so it
// could not continue what shop-1 has begun.
func checkoutOf(build string) *engine.Workflow[Cart, Receipt] {
	signatures := 1
	if build == "shop-2" {
		signatures = 2
	}
	return &engine.Workflow[Cart, Receipt]{Name: checkout.Name, Func: func(run *engine.Run, _ Cart) (Receipt, error) {
		r := Receipt{Build: build}
		for range signatures {
			by, err := signed.Receive(run)
			if err != nil {
				return Receipt{}, err
			}
			r.Signed = append(r.Signed, by)
		}
		return r, nil
	}}
}

// A service is a process of the shop.
type service struct {
	store    *sqlite.Store
	engine   *engine.Engine
	plane    *control.Plane
	server   *http.Server
	listener net.Listener
	stop     context.CancelFunc
	ended    chan error // one from each of the goroutines
}

const goroutines = 3

// newService starts a process of one build. Other processes have the same file open.
func newService(db, build, secret string) (*service, error) {
	quiet := slog.New(slog.DiscardHandler)
	store, err := sqlite.Open(db, &sqlite.Options{Shared: true})
	if err != nil {
		return nil, err
	}
	s := &service{store: store, ended: make(chan error, goroutines)}
	s.engine, err = engine.New(engine.Config{
		Storage:      store,
		Deployment:   build,
		Workflows:    []engine.Definition{checkoutOf(build)},
		PollInterval: 50 * time.Millisecond,
		Logger:       quiet,
	})
	if err == nil {
		s.plane, err = control.New(control.Config{
			Engine:            s.engine,
			Keys:              []control.Key{{ID: "release-tool", Secret: secret, Scopes: []string{"admin"}}},
			RequireDeployment: true,
			Logger:            quiet,
		})
	}
	if err == nil {
		s.listener, err = net.Listen("tcp", "127.0.0.1:0") // beyond this machine: TLS, and Config.HTTPS
	}
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}

	mux := http.NewServeMux()
	mux.Handle("/v1/", s.plane)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "the shop, build "+build) })
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 32 << 10}
	s.server.RegisterOnShutdown(func() { s.plane.Close() }) // ends long polls and streams

	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() { s.ended <- s.engine.Run(ctx) }()
	go func() { s.ended <- s.plane.Run(ctx) }()
	go func() { s.ended <- s.server.Serve(s.listener) }()
	return s, nil
}

func (s *service) url() string { return "http://" + s.listener.Addr().String() }

// close answers what is in progress, and releases the runs: another process of the build continues
// them.
func (s *service) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		s.server.Close()
	}
	s.stop()
	for range goroutines {
		<-s.ended
	}
	s.plane.Close()
	s.engine.Close()
	s.store.Close()
}
