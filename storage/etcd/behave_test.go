package etcd_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/internal/etcdtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/etcd"
)

// A commit tells how many shared its transaction, and batches of a group are judged each by
// itself.
func TestGroups(t *testing.T) {
	s := open(t, cluster(t), empty())
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("there", "1")}}))
	sizes := make([]int, 200)
	for round := range 20 {
		var all sync.WaitGroup
		for i := range sizes {
			sizes[i] = 0
			all.Go(func() {
				key := fmt.Sprintf("%d:%d", round, i)
				b := storage.Batch{Ops: []storage.Op{put(key, "1")}, Group: &sizes[i]}
				var want error
				if i%10 == 3 {
					b.If, want = []storage.Condition{storage.Equal([]byte("there"), []byte("2"))}, storage.ErrConflict
				}
				if err := s.Commit(t.Context(), b); !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			})
		}
		all.Wait()
		if n := slices.Min(sizes); n < 1 {
			t.Fatalf("a commit of round %d was in a group of %d", round, n)
		}
		page, err := s.Scan(t.Context(), storage.Prefix(fmt.Appendf(nil, "%d:", round)))
		if err != nil || len(page) != 180 {
			t.Fatalf("got %d entries and error %v, want 180", len(page), err)
		}
		if slices.Max(sizes) > 1 {
			return
		}
	}
	t.Error("no commit of 20 times 200 at once was in a group with another")
}

// A store wakes others for what it puts, and neither itself nor anybody for an urgent batch.
func TestWatch(t *testing.T) {
	c := cluster(t)
	o := empty()
	a, b := open(t, c, o), open(t, c, o)
	woken := map[string]chan struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	watch := func(name string, s *etcd.Store, prefix string) {
		ch := make(chan struct{}, 100)
		woken[name] = ch
		all.Go(func() {
			err := s.Watch(ctx, []byte(prefix), func() { ch <- struct{}{} })
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Watch: got %v, want %v", err, context.Canceled)
			}
		})
	}
	watch("same", b, "todo:")
	watch("below", b, "todo:x:")
	watch("other", b, "wake:")
	watch("own", a, "todo:")
	commit := func(key string, urgent bool) {
		must(t, a.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put(key, "1")}, Urgent: urgent}))
	}
	// The watch begins with a wake, and with another when the server has begun it. Until then
	// changes may be missed.
	eventually(t, "a wake", func() bool {
		commit("todo:x:1", false)
		select {
		case <-woken["below"]:
		default:
			return false
		}
		return len(woken["same"]) > 0
	})
	for try := 1; ; try++ {
		time.Sleep(time.Second) // for what is under way, which may take longer
		for _, ch := range woken {
			for len(ch) > 0 {
				<-ch
			}
		}
		commit("todo:x:2", true)
		commit("todo:y:1", false)
		<-woken["same"]
		commit("wake:1", false)
		<-woken["other"]
		below, own := len(woken["below"]), len(woken["own"])
		if below == 0 && own == 0 {
			break
		}
		if try == 10 {
			t.Errorf("each time, such as %d times, a watch of todo:x: was woken by todo:y: or an urgent batch, or, such as %d times, a store by itself", below, own)
			break
		}
	}
	cancel()
	all.Wait()
	ended := make(chan error)
	go func() { ended <- b.Watch(t.Context(), []byte("x"), func() {}) }()
	must(t, b.Close())
	if err := <-ended; !errors.Is(err, storage.ErrClosed) {
		t.Errorf("after Close: got %v, want ErrClosed", err)
	}
}

// Stores with different prefixes do not see each other, and one of a later release is refused.
func TestPrefixes(t *testing.T) {
	c := cluster(t)
	a, b := empty(), empty()
	one, other := open(t, c, a), open(t, c, b)
	must(t, one.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("k", "1")}}))
	must(t, other.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Range{})}}))
	if page, err := other.Scan(t.Context(), storage.Range{}); len(page) != 0 || err != nil {
		t.Errorf("got %d entries and error %v, want none", len(page), err)
	}
	if v, err := one.Get(t.Context(), []byte("k")); string(v) != "1" || err != nil {
		t.Errorf("got %q and error %v, want 1", v, err)
	}
	_, err := admin(t, c).Put(t.Context(), b.Prefix+"format", "2")
	must(t, err)
	if _, err := etcd.Open(t.Context(), clientv3.Config{Endpoints: c.Endpoints()}, b); !errors.Is(err, storage.ErrFutureFormat) {
		t.Errorf("got %v, want ErrFutureFormat", err)
	}
}

// Options that no server has, and servers that accept less than the options say.
func TestLimits(t *testing.T) {
	for name, o := range map[string]*etcd.Options{
		"Prefix":          {Prefix: strings.Repeat("x", 300)},
		"MaxTxnOps":       {MaxTxnOps: 3},
		"MaxRequestBytes": {MaxRequestBytes: 1000},
	} {
		if _, err := etcd.Open(t.Context(), clientv3.Config{Endpoints: []string{"127.0.0.1:1"}}, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := etcd.Open(t.Context(), clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, AutoSyncInterval: time.Minute}, nil); err == nil || !strings.Contains(err.Error(), "AutoSyncInterval") {
		t.Errorf("members that are to be found: got %v", err)
	}
	c := etcdtest.Start(t, etcdtest.Options{Flags: []string{"--max-txn-ops=40", "--max-request-bytes=524288"}})
	if _, err := etcd.Open(t.Context(), clientv3.Config{Endpoints: c.Endpoints()}, nil); err == nil || !strings.Contains(err.Error(), "--max-txn-ops") {
		t.Errorf("the servers accept 40 operations: got %v", err)
	}
	s := open(t, c, &etcd.Options{MaxTxnOps: 40})
	large := storage.Batch{Ops: []storage.Op{storage.Put([]byte("k"), make([]byte, 700<<10))}}
	if err := s.Commit(t.Context(), large); !errors.Is(err, storage.ErrInvalidBatch) {
		t.Errorf("a batch of 700 KiB for servers that accept 512: got %v, want ErrInvalidBatch", err)
	}
	large.Ops = append(large.Ops, storage.DeleteRange(storage.Prefix([]byte("x"))))
	if err := s.Commit(t.Context(), large); !errors.Is(err, storage.ErrInvalidBatch) || !strings.Contains(err.Error(), "set these to the servers' flags") {
		t.Errorf("and with a range that has no key of it: got %v, want ErrInvalidBatch, and what to set", err)
	}
	if got := s.Capabilities().MaxBatch; got != (storage.Size{Ops: 39, Bytes: 1 << 20}) {
		t.Errorf("got %v", got)
	}
	// The most operations, each put within a range that is deleted, which splits it.
	most := storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Range{})}}
	for i := range 38 {
		most.Ops = append(most.Ops, put(fmt.Sprintf("k%02d", i), "1"))
	}
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("k005", "old"), put("a", "old"), put("z", "old")}}))
	must(t, s.Commit(t.Context(), most))
	if page, err := s.Scan(t.Context(), storage.Range{}); len(page) != 38 || err != nil {
		t.Errorf("got %d entries and error %v, want 38", len(page), err)
	}
	for _, conditions := range []int{1, 3, 19} {
		b := storage.Batch{Ops: slices.Clone(most.Ops[:39-conditions])}
		for i := range conditions {
			b.If = append(b.If, storage.Present(fmt.Appendf(nil, "k%02d", i)))
		}
		must(t, s.Commit(t.Context(), b))
		if page, err := s.Scan(t.Context(), storage.Range{}); len(page) != 38-conditions || err != nil {
			t.Errorf("got %d entries and error %v, want %d", len(page), err, 38-conditions)
		}
		must(t, s.Commit(t.Context(), most))
	}
}

// A batch of the size that is allowed whose keys are so long, and in a range that it deletes, that the servers refuse it. The
// error says why, and nothing is written.
func TestLongKeysInADeletedRange(t *testing.T) {
	s := open(t, cluster(t), empty())
	must(t, s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put("there", "1")}}))
	most := s.Capabilities().MaxBatch
	b := storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Range{})}}
	for i := range most.Ops - 1 {
		key := fmt.Appendf(bytes.Repeat([]byte("k"), storage.MaxKey-3), "%03d", i)
		b.Ops = append(b.Ops, storage.Put(key, make([]byte, most.Bytes/most.Ops-len(key)-100)))
	}
	if err := b.Check(most); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), b); !errors.Is(err, storage.ErrInvalidBatch) || !strings.Contains(err.Error(), "three times") {
		t.Errorf("got %v, want ErrInvalidBatch, and that keys are sent three times", err)
	}
	if page, err := s.Scan(t.Context(), storage.Range{}); len(page) != 1 || err != nil {
		t.Errorf("got %d entries and error %v, want the one from before", len(page), err)
	}
	b.Ops = b.Ops[1:]
	must(t, s.Commit(t.Context(), b))
}

// Batches that gRPC itself finds too large, in the server or in the client, are refused, and groups
// of them are divided.
func TestLimitsOfGRPC(t *testing.T) {
	t.Parallel()
	// A server lets a message have half a megabyte more than a request.
	c := etcdtest.Start(t, etcdtest.Options{Flags: []string{"--max-request-bytes=131072"}})
	for name, config := range map[string]clientv3.Config{
		"server": {Endpoints: c.Endpoints()},
		"client": {Endpoints: c.Endpoints(), MaxCallSendMsgSize: 128 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := etcd.Open(t.Context(), config, empty())
			must(t, err)
			defer s.Close()
			key := []byte("large")
			err = s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(key, make([]byte, 900<<10))}})
			if !errors.Is(err, storage.ErrInvalidBatch) || !strings.Contains(err.Error(), "message larger than max") {
				t.Errorf("got %v, want ErrInvalidBatch of a message larger than max", err)
			}
			if _, err := s.Get(t.Context(), key); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("got %v, want ErrNotFound", err)
			}
			for round := range 5 { // of more than a megabyte; the first of a round may go alone
				var all sync.WaitGroup
				for i := range 20 {
					all.Go(func() {
						key := fmt.Appendf(nil, "%d:%d", round, i)
						if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{storage.Put(key, make([]byte, 100<<10))}}); err != nil {
							t.Errorf("%s: %v", key, err)
						}
					})
				}
				all.Wait()
			}
		})
	}
}

// A user who may use the store's prefix only, over TLS. Tokens expire while it works, and users
// change.
func TestAuthAndTLS(t *testing.T) {
	cert, key, pool := certificate(t)
	c := etcdtest.Start(t, etcdtest.Options{Members: 3, TLS: &etcdtest.TLS{Cert: cert, Key: key, Pool: pool}, Flags: []string{"--auth-token-ttl=1"}})
	config := clientv3.Config{Endpoints: c.Endpoints(), TLS: &tls.Config{RootCAs: pool}}
	root, err := clientv3.New(config)
	must(t, err)
	defer root.Close()
	ctx := t.Context()
	for _, f := range []func() error{
		func() error { _, err := root.RoleAdd(ctx, "root"); return err },
		func() error { _, err := root.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := root.RoleAdd(ctx, "shop"); return err },
		func() error {
			_, err := root.RoleGrantPermission(ctx, "shop", "shop/", clientv3.GetPrefixRangeEnd("shop/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := root.UserAdd(ctx, "ann", "password"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "ann", "shop"); return err },
		func() error { _, err := root.AuthEnable(ctx); return err },
	} {
		must(t, f())
	}
	config.Username, config.Password = "ann", "password"
	if s, err := etcd.Open(ctx, config, nil); err == nil {
		s.Close()
		t.Error("a user opened a store at a prefix for which it has no permission")
	}
	s, err := etcd.Open(ctx, config, &etcd.Options{Prefix: "shop/"})
	must(t, err)
	defer s.Close()
	admin := config
	admin.Username, admin.Password = "root", "secret"
	other, err := clientv3.New(admin)
	must(t, err)
	defer other.Close()
	began := time.Now()
	for n := 0; time.Since(began) < 5*time.Second; n++ {
		if n%20 == 10 { // what is cached of users is old then
			_, err := other.UserChangePassword(ctx, "root", "secret")
			must(t, err)
		}
		if n%50 == 49 {
			time.Sleep(1500 * time.Millisecond) // until the token has expired
		}
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				key := []byte(fmt.Sprint(n, ":", i))
				err := s.Commit(ctx, storage.Batch{If: []storage.Condition{storage.Absent(key)}, Ops: []storage.Op{storage.Put(key, key)}})
				if err != nil {
					t.Errorf("%s: %v", key, err)
				}
				if v, err := s.Get(ctx, key); !bytes.Equal(v, key) || err != nil {
					t.Errorf("%s: got %q and error %v", key, v, err)
				}
			})
		}
		all.Wait()
		if t.Failed() {
			return
		}
	}
	wrong := config
	wrong.Password = "wrong"
	if _, err := etcd.Open(ctx, wrong, &etcd.Options{Prefix: "shop/"}); err == nil || !strings.Contains(err.Error(), "authentication failed") {
		t.Errorf("with a wrong password: got %v", err)
	}
}

// certificate makes a certificate for this machine that signs itself.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	raw, err := x509.CreateCertificate(crand.Reader, template, template, &private.PublicKey, private)
	must(t, err)
	encoded, err := x509.MarshalECPrivateKey(private)
	must(t, err)
	cert, key = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600))
	must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), 0o600))
	parsed, err := x509.ParseCertificate(raw)
	must(t, err)
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return cert, key, pool
}

// A store that turns to another member does not disturb the calls that the first is answering.
func TestTurningDisturbsNobody(t *testing.T) {
	s := open(t, cluster(t), empty())
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			for n := range 50 {
				if err := s.Commit(t.Context(), storage.Batch{Ops: []storage.Op{put(fmt.Sprint(i), fmt.Sprint(n))}}); err != nil {
					t.Errorf("got %v, want nil", err)
				}
				if i == 0 {
					s.Turn()
				}
			}
		})
	}
	all.Wait()
}

// A host's configuration does not make the client use all members at a time.
func TestOneMemberAtATime(t *testing.T) {
	c := cluster(t)
	s, err := etcd.Open(t.Context(), clientv3.Config{Endpoints: c.Endpoints(), AutoSyncInterval: 10 * time.Millisecond}, empty())
	must(t, err)
	defer s.Close()
	for range 50 {
		time.Sleep(10 * time.Millisecond)
		if all := s.Endpoints(); len(all) != 1 {
			t.Fatalf("got the members %q, want one", all)
		}
	}
}
