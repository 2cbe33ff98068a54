package etcd

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/weft-go/weft/storage"
)

// Open opens the store in the cluster that c describes, and creates it if it does not exist. A
// nil o means the defaults.
//
// c has the addresses of all members that the store may turn to, and what is needed for TLS and authentication. Open sets
// fields of c which have the zero value: a client that is silent, notices a dead connection in
// about ten seconds and connects again within two. It always turns off the client's retries,
// because the client would send a transaction again whose answer was lost. It also turns off
// AutoSyncInterval: the client would then use all members at a time, also one that does not answer.
// With that and one address, which the others were to be found from, Open returns an error.
func Open(ctx context.Context, c clientv3.Config, o *Options) (*Store, error) {
	s, err := open(ctx, c, o)
	if err != nil {
		return nil, wrap("open", err)
	}
	return s, nil
}

func open(ctx context.Context, c clientv3.Config, o *Options) (*Store, error) {
	full, err := withDefaults(o)
	if err != nil {
		return nil, err
	}
	if len(c.Endpoints) == 0 {
		return nil, errors.New("the configuration has no endpoints, which are the addresses of the members")
	}
	if len(c.Endpoints) == 1 && c.AutoSyncInterval > 0 {
		return nil, errors.New("the configuration has an AutoSyncInterval and one endpoint: the store finds no other members, so give it the addresses of all")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	endpoints := slices.Clone(c.Endpoints)
	rand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
	c.Endpoints = endpoints
	// The client repeats a transaction if the server answers Canceled or DeadlineExceeded, even
	// after it was applied. A limit of one attempt prevents that.
	c.MaxUnaryRetries = 1
	c.AutoSyncInterval = 0
	c.DialTimeout = cmp.Or(c.DialTimeout, silence)
	c.DialKeepAliveTime = cmp.Or(c.DialKeepAliveTime, keepAlive)
	c.DialKeepAliveTimeout = cmp.Or(c.DialKeepAliveTimeout, keepAliveTimeout)
	c.MaxCallSendMsgSize = cmp.Or(c.MaxCallSendMsgSize, full.MaxRequestBytes+grpcOverhead)
	if c.Logger == nil && c.LogConfig == nil {
		c.Logger = zap.NewNop()
	}
	reconnect := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: silence}
	c.DialOptions = append([]grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: silence})}, c.DialOptions...)
	client, err := connect(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &Store{
		options: full,
		id:      crand.Text(),
		max:     storage.Size{Ops: full.MaxTxnOps - 1, Bytes: full.MaxRequestBytes / 3 * 2},
		layout:  newLayout(full.Prefix),
		client:  client,
	}
	s.members.init(client, endpoints)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.prepare(ctx); err != nil {
		s.cancel()
		client.Close()
		return nil, err
	}
	s.queue = newQueue(s)
	s.watch = &watcher{store: s}
	for range committers {
		s.running.Go(s.queue.run)
	}
	return s, nil
}

// grpcOverhead is how much more than MaxRequestBytes the servers let a message have.
const grpcOverhead = 512 << 10

// connect makes a client. With a password the client asks a member at once, so it begins
// with another one if that fails.
func connect(ctx context.Context, c clientv3.Config) (client *clientv3.Client, err error) {
	for range c.Endpoints {
		if client, err = clientv3.New(c); err == nil || ctx.Err() != nil || !away(err) {
			return client, err
		}
		c.Endpoints = append(c.Endpoints[1:], c.Endpoints[0])
	}
	return nil, err
}

func withDefaults(o *Options) (Options, error) {
	full := Options{}
	if o != nil {
		full = *o
	}
	full.Prefix = cmp.Or(full.Prefix, "weft/")
	full.MaxTxnOps = cmp.Or(full.MaxTxnOps, 128)
	full.MaxRequestBytes = cmp.Or(full.MaxRequestBytes, 1<<20+1<<19)
	switch {
	case len(full.Prefix) > maxPrefix:
		return full, fmt.Errorf("Options.Prefix has %d bytes, at most %d", len(full.Prefix), maxPrefix)
	case full.MaxTxnOps < leastTxnOps:
		return full, fmt.Errorf("Options.MaxTxnOps is %d, at least %d", full.MaxTxnOps, leastTxnOps)
	case full.MaxRequestBytes < leastRequestBytes:
		return full, fmt.Errorf("Options.MaxRequestBytes is %d, at least %d", full.MaxRequestBytes, leastRequestBytes)
	}
	return full, nil
}

const (
	maxPrefix         = 256
	leastTxnOps       = 16
	leastRequestBytes = 256 << 10
)

// format is the version of the layout of keys.
const format = "1"

// prepare checks that the servers accept as many operations as the options say, and that the
// store has a format that this release knows. In a new store it writes the format.
func (s *Store) prepare(ctx context.Context) error {
	look := clientv3.OpGet(s.layout.format)
	looks := slices.Repeat([]clientv3.Op{look}, s.options.MaxTxnOps)
	err := s.read(ctx, func(ctx context.Context) error {
		_, err := s.client.Txn(ctx).Then(looks...).Commit()
		return err
	})
	if refused(err) {
		return fmt.Errorf("the servers do not accept the %d operations of Options.MaxTxnOps: set it to their --max-txn-ops: %w", s.options.MaxTxnOps, err)
	}
	var found string
	for range 3 { // the first may not know whether it has written the format
		if err != nil {
			return err
		}
		if found, err = s.format(ctx); err != nil || found != "" {
			break
		}
		_, _ = s.transact(commitTimeout, clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(s.layout.format), "=", 0)},
			[]clientv3.Op{clientv3.OpPut(s.layout.format, format)}, nil))
	}
	switch {
	case err != nil:
		return err
	case found == "":
		return fmt.Errorf("the servers did not take the key %q", s.layout.format)
	case found != format:
		return fmt.Errorf("the store at %q has the format %q, and this release knows %q: %w", s.options.Prefix, found, format, storage.ErrFutureFormat)
	}
	return nil
}

func (s *Store) format(ctx context.Context) (found string, err error) {
	err = s.read(ctx, func(ctx context.Context) error {
		answer, err := s.client.Get(ctx, s.layout.format)
		if err == nil && len(answer.Kvs) > 0 {
			found = string(answer.Kvs[0].Value)
		}
		return err
	})
	return found, err
}

// A layout is where the store has its keys in the cluster.
type layout struct {
	format  string // holds the format
	changes string // is put by every transaction, for those who watch
	data    string // begins the keys of entries
	end     string // is after the last entry
}

func newLayout(prefix string) layout {
	return layout{format: prefix + "format", changes: prefix + "changes", data: prefix + "data/", end: prefix + "data0"}
}
