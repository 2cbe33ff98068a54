package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"time"

	"github.com/weft-go/weft"
	remote "github.com/weft-go/weft/client"
	"github.com/weft-go/weft/control"
	"github.com/weft-go/weft/control/wire"
	"github.com/weft-go/weft/engine"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/bolt"
	"github.com/weft-go/weft/storage/postgres"
	"github.com/weft-go/weft/storage/sqlite"
)

// demoDeployment names the demonstration's workflows. Another number means other code.
const demoDeployment = "demo-1"

// A serve serves a control plane. The secrets that it needs are in files that only its user can
// read, or in the environment: others can see the command line.
type serve struct {
	Listen     string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where to listen (default ${default}). Other machines must come by https: see --tls-cert and --trusted-proxy."`
	Demo       bool   `help:"Execute a demonstration workflow, checkout. Without a store it is sqlite:weft-demo.db; without keys, they are in weft-demo-keys.json."`
	Keys       string `type:"path" env:"WEFT_KEYS_FILE" placeholder:"FILE" help:"A file of keys, which only you may be able to read: [{\"id\", \"secret\", \"scopes\"}]. With --demo it is made if there is none."`
	Deployment string `placeholder:"ID" help:"The deployment to record and activate if none ever was: that of the workers on the store. With --demo it is ${demo}."`
	Activate   bool   `default:"true" negatable:"" help:"Activate the deployment if none ever was (default true)."`

	TLSCert      string   `name:"tls-cert" type:"path" placeholder:"FILE" help:"The certificate, with its chain, to serve https."`
	TLSKey       string   `name:"tls-key" type:"path" placeholder:"FILE" help:"The private key of the certificate."`
	TrustedProxy []string `placeholder:"PREFIX" help:"A proxy that adds https, such as 10.0.0.0/8, whose X-Forwarded headers count. Repeat it for several."`
	Hops         int      `default:"1" placeholder:"N" help:"How many proxies a request passes (default 1)."`

	RateLimit int `default:"120" placeholder:"N" help:"How many requests a key may make in a minute (default 120)."`

	StopTimeout time.Duration `default:"15s" placeholder:"DURATION" help:"How long requests in progress may take after SIGTERM (default ${default})."`

	Artifacts string `type:"path" placeholder:"DIR" help:"The folder for artifacts of deployments. Without it they are refused."`
}

// Run serves until the context ends.
func (s *serve) Run(e *env) error {
	if s.Demo && e.Store == "" {
		e.Store = "sqlite:weft-demo.db"
	}
	if s.Demo && s.Keys == "" {
		s.Keys = "weft-demo-keys.json" // the same key after a restart, as the runs are the same
	}
	at, err := s.check(e)
	if err != nil {
		return err
	}
	config, err := s.config()
	if err != nil {
		return err
	}
	keys, err := s.keys()
	if err != nil {
		return err
	}
	config.Keys = controlKeys(keys)
	level := slog.LevelInfo
	if s.Demo {
		level = slog.LevelWarn
	}
	config.Logger = slog.New(slog.NewTextHandler(e.notes, &slog.HandlerOptions{Level: level}))

	store, err := at.create(e, !s.Demo)
	if err != nil {
		return err
	}
	defer store.Close()
	eng, err := s.engine(store, config.Logger)
	if err != nil {
		return err
	}
	defer eng.Close()
	config.Engine = eng
	p, err := s.plane(e, config)
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return err
	}
	if has, err := p.HasKey(e); err == nil && !has {
		e.note("no request is accepted until there is a key: %s", firstKey(e, at))
	}
	s.tell(e, at, l.Addr(), keys)
	if err := e.out.Flush(); err != nil {
		l.Close()
		return err
	}
	return s.until(e, l, p, eng)
}

// check checks the flags before anything is opened.
func (s *serve) check(e *env) (place, error) {
	at, err := parsePlace(e.Store, e.Table)
	if err != nil {
		return place{}, err
	}
	if at.kind == "postgres" && e.Store != os.Getenv("WEFT_STORE") && mayHavePassword(at.at) {
		return place{}, misuse("every user of this machine can see a password on the command line: set WEFT_STORE instead of --store")
	}
	host, _, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return place{}, misuse("--listen %s is not HOST:PORT, such as 127.0.0.1:8080", word(s.Listen))
	}
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return place{}, misuse("--tls-cert and --tls-key go together")
	}
	if !isLoopback(host) && s.TLSCert == "" && len(s.TrustedProxy) == 0 {
		return place{}, misuse("other machines can reach %s, and must come by https: give --tls-cert and --tls-key, or the --trusted-proxy that adds https", word(s.Listen))
	}
	if s.Hops < 1 {
		return place{}, misuse("--hops %d is less than 1", s.Hops)
	}
	if s.StopTimeout < 0 {
		return place{}, misuse("--stop-timeout %v is negative", s.StopTimeout)
	}
	if s.RateLimit < 1 {
		return place{}, misuse("--rate-limit %d is less than 1", s.RateLimit)
	}
	return at, nil
}

// mayHavePassword reports whether a URL of PostgreSQL has a password, or cannot be parsed.
func mayHavePassword(store string) bool {
	u, err := url.Parse(store)
	if err != nil {
		return true
	}
	query, err := url.ParseQuery(u.RawQuery)
	_, has := u.User.Password()
	return err != nil || has || query.Has("password") || query.Has("sslpassword")
}

// config returns what the flags say of the plane.
func (s *serve) config() (control.Config, error) {
	c := control.Config{RequireDeployment: true, RateLimit: s.RateLimit, Guard: control.GuardFromEnv(os.LookupEnv)}
	if host, _, _ := net.SplitHostPort(s.Listen); !isLoopback(host) {
		c.HTTPS = control.HTTPSStrict
	}
	for _, p := range s.TrustedProxy {
		prefix, err := netip.ParsePrefix(p)
		if address, bad := netip.ParseAddr(p); bad == nil {
			prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			return c, misuse("--trusted-proxy %s is neither an address nor a prefix such as 10.0.0.0/8", word(p))
		}
		c.Proxies.Trusted = append(c.Proxies.Trusted, prefix)
	}
	if len(c.Proxies.Trusted) > 0 {
		c.Proxies.Hops = s.Hops
	}
	if s.Artifacts != "" {
		dir, err := control.Dir(s.Artifacts)
		if err != nil {
			return c, err
		}
		c.Artifacts = dir
	}
	return c, nil
}

// keys returns the keys to seed, which are in a file. That of a demonstration is made if it is not there.
func (s *serve) keys() ([]fileKey, error) {
	if s.Keys == "" {
		return nil, nil
	}
	all, err := readKeys(s.Keys)
	if errors.Is(err, fs.ErrNotExist) && s.Demo {
		return makeKeys(s.Keys, "demo")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, misuse("there is no file of keys %s", word(s.Keys))
	}
	return all, err
}

// create opens the store of a place, and makes it if there is none. A store that is shared can be
// used by workers, and by this command, at the same time.
func (p place) create(ctx context.Context, shared bool) (storage.Storage, error) {
	switch p.kind {
	case "sqlite":
		return opened(sqlite.Open(p.at, &sqlite.Options{Table: p.table, Shared: shared}))
	case "bolt":
		return opened(bolt.Open(p.at, &bolt.Options{Bucket: p.table}))
	}
	return opened(postgres.Open(ctx, p.at, p.postgresOptions()))
}

// engine returns an engine on the store. Without the demonstration it executes nothing: it starts
// the workflows of workers.
func (s *serve) engine(store storage.Storage, log *slog.Logger) (*engine.Engine, error) {
	c := engine.Config{Storage: store, Logger: log}
	if s.Demo {
		c.Workflows = []engine.Definition{checkout}
		c.Deployment = s.build()
	}
	return engine.New(c)
}

// build is the deployment that is activated if none ever was; "": none.
func (s *serve) build() string {
	if s.Deployment == "" && s.Demo {
		return demoDeployment
	}
	return s.Deployment
}

// plane makes the plane, and activates the deployment if none ever was.
func (s *serve) plane(ctx context.Context, c control.Config) (*control.Plane, error) {
	_, err := c.Engine.ActiveDeployment(ctx)
	if err != nil && !errors.Is(err, weft.ErrNoActiveDeployment) {
		return nil, err
	}
	if err == nil || s.build() == "" || !s.Activate {
		return control.New(c)
	}
	own := newOwnKey()
	c.Keys = append(c.Keys, own)
	p, err := control.New(c)
	if err != nil {
		return nil, err
	}
	err = s.activate(ctx, p, own)
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("activate deployment %s: %w", s.build(), err)
	}
	return p, nil
}

// activate records and activates the deployment, unless another process has just activated one.
func (s *serve) activate(ctx context.Context, p *control.Plane, own control.Key) error {
	c, err := remote.New("http://localhost", own.Secret, &remote.Options{Transport: handled{http: p, secure: true}})
	if err != nil {
		return err
	}
	manifest := struct {
		DeploymentID string     `json:"deploymentId"`
		Workflows    []workflow `json:"workflows,omitempty"`
	}{DeploymentID: s.build()}
	if s.Demo {
		manifest.Workflows = []workflow{{checkout.Name}}
	}
	data, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	_, err = c.CreateDeployment(ctx, data, nil)
	if refused, ok := errors.AsType[*remote.Error](err); ok && refused.Code == string(wire.CodeDeploymentExists) {
		err = nil // somebody has recorded it, with a manifest of his own
	}
	if err == nil {
		_, err = c.Activate(ctx, s.build(), remote.IfNoneActive(), weft.Actor{Reason: "weft serve: none was ever active"})
	}
	if errors.Is(err, weft.ErrNotApplicable) {
		err = nil
	}
	return errors.Join(err, c.RevokeKey(ctx, own.ID, "", ""))
}

type workflow struct {
	Name string `json:"name"`
}

// tell prints where the plane is and, for a demonstration, what to do.
func (s *serve) tell(e *env, at place, listens net.Addr, keys []fileKey) {
	scheme := "http"
	if s.TLSCert != "" {
		scheme = "https"
	}
	address := scheme + "://" + listens.String()
	fmt.Fprintf(e.out, "weft serves %s on %s\n", address, at)
	if !s.Demo || len(keys) == 0 {
		return
	}
	key := `export WEFT_KEY=$(grep -o 'weft_sk_[A-Za-z0-9_-]*' ` + word(s.Keys) + ` | head -n 1)`
	fmt.Fprintf(e.out, demoText, address, key, needsApproval)
}

// firstKey returns the command that makes a key in the store.
func firstKey(e *env, at place) string {
	command := "weft keys create admin --scope admin"
	if at.kind != "postgres" || e.Store != os.Getenv("WEFT_STORE") { // otherwise it may have a password
		command += " --store " + word(e.Store)
	}
	if e.Table != "" {
		command += " --table " + word(e.Table)
	}
	command += " --write"
	if at.kind == "bolt" {
		return "stop this server, since a file of bbolt admits one process, and run " + command
	}
	return command
}

const demoText = `
Start an order, and get its receipt two seconds later:

  export WEFT_URL=%s
  %s
  curl -H "Authorization: Bearer $WEFT_KEY" -H 'Idempotency-Key: order-42' -H 'Content-Type: application/json' \
       -d '{"workflowName":"checkout","runId":"order-42","input":{"cents":4900}}' $WEFT_URL/v1/runs
  curl -H "Authorization: Bearer $WEFT_KEY" "$WEFT_URL/v1/runs/order-42/result?wait=30"

From %d cents on, an order waits for an approval (in a clone, weft is go run ./cmd/weft):

  weft runs start checkout order-43 --input '{"cents":49000}'
  weft signals send order-43 approved --payload '"ann"'
  weft runs result order-43

Kill this process at any moment and start it again: the orders go on.
`

// until serves until the context ends, or something fails. Then requests in progress are answered,
// and what the engine executes is released.
func (s *serve) until(e *env, l net.Listener, p *control.Plane, eng *engine.Engine) error {
	ctx, stop := context.WithCancel(e.Context)
	defer stop()
	server := newServer(p.Watch(p), e.notes)
	ended := make(chan error)
	running := 0
	begin := func(f func() error) {
		running++
		go func() { ended <- f() }()
	}
	begin(func() error { return p.Run(ctx) })
	if s.Demo {
		begin(func() error { return eng.Run(ctx) })
	}
	begin(func() error {
		if s.TLSCert != "" {
			return server.ServeTLS(l, s.TLSCert, s.TLSKey)
		}
		return server.Serve(l)
	})
	var errs []error
	note := func(err error) {
		if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	select {
	case <-ctx.Done():
	case err := <-ended:
		running--
		note(err)
		if err == nil && ctx.Err() == nil { // otherwise it was told to
			errs = append(errs, errors.New("serve: a part of it has ended by itself; its log says why. Start it again"))
		}
	}
	begin(p.Close) // long polls and streams end, so that the server can
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.StopTimeout)
	defer cancel()
	if err := server.Shutdown(patience); err != nil {
		server.Close()
	}
	stop()
	for range running {
		note(<-ended)
	}
	return errors.Join(errs...)
}

// newServer returns a server with limits for clients that are slow, or send too much.
func newServer(h http.Handler, notes io.Writer) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12},
		ErrorLog:          slog.NewLogLogger(slog.NewTextHandler(notes, nil), slog.LevelWarn),
	}
}

// isLoopback reports whether only this machine can reach a host.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
