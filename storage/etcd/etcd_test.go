package etcd_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/internal/etcdtest"
	"github.com/weft-go/weft/internal/inturn"
	"github.com/weft-go/weft/internal/leaks"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/etcd"
	"github.com/weft-go/weft/storage/storagetest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "4") // faults mostly wait
	code := m.Run()
	stopShared()
	os.Exit(leaks.Check(code))
}

// shared is a cluster of three members for tests that do not harm it.
var shared struct {
	cluster *etcdtest.Cluster
	stop    func()
}

func stopShared() {
	if shared.stop != nil {
		shared.stop()
	}
}

func cluster(t testing.TB) *etcdtest.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("-short starts no etcd server")
	}
	if shared.cluster == nil {
		var err error
		if shared.cluster, shared.stop, err = etcdtest.Launch(etcdtest.Options{Members: 3}); err != nil {
			t.Fatal(err)
		}
	}
	return shared.cluster
}

var stores atomic.Int64

// empty returns the options of a new store.
func empty() *etcd.Options {
	return &etcd.Options{Prefix: fmt.Sprintf("store%d/", stores.Add(1))}
}

func open(t testing.TB, c *etcdtest.Cluster, o *etcd.Options) *etcd.Store {
	t.Helper()
	s, err := etcd.Open(t.Context(), clientv3.Config{Endpoints: c.Endpoints()}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

var want = storage.Capabilities{
	ConditionalBatch: true,
	AtomicBatch:      true,
	ReadAfterWrite:   true,
	ScanConsistency:  storage.Snapshot,
	Durable:          true,
	Shared:           true,
	MaxBatch:         storage.Size{Ops: 127, Bytes: 1 << 20},
}

func TestStorage(t *testing.T) {
	c := cluster(t)
	places := map[storage.Storage]*etcd.Options{}
	at := func(t testing.TB, o *etcd.Options) storage.Storage {
		s := open(t, c, o)
		places[s] = o
		return s
	}
	storagetest.Run(t, storagetest.Adapter{
		Open:   func(t testing.TB) storage.Storage { return at(t, empty()) },
		Reopen: func(t testing.TB, s storage.Storage) storage.Storage { return at(t, places[s]) },
		Want:   &want,
	})
}

// The suite on two stores, as in two processes.
func TestStorageOfTwo(t *testing.T) {
	c := cluster(t)
	two := func(t testing.TB, prefix string) storage.Storage {
		o := &etcd.Options{Prefix: prefix}
		return inturn.New(prefix, open(t, c, o), open(t, c, o))
	}
	storagetest.Run(t, storagetest.Adapter{
		Open:   func(t testing.TB) storage.Storage { return two(t, empty().Prefix) },
		Reopen: func(t testing.TB, s storage.Storage) storage.Storage { return two(t, s.(*inturn.Stores).Name) },
		Want:   &want,
	})
}

// The row of this store in the table of stores. The root, which cannot open one, compares the same
// capabilities with the rest of the table.
func TestRowOfTheGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guides/stores.md")
	must(t, err)
	yes := map[bool]string{true: "yes", false: "no"}
	row := fmt.Sprintf("| `storage/etcd` | %s | %s | %s | %s | %s | %s | %d, %d MiB |\n",
		yes[want.ConditionalBatch], yes[want.AtomicBatch], yes[want.ReadAfterWrite], want.ScanConsistency, yes[want.Durable], yes[want.Shared], want.MaxBatch.Ops, want.MaxBatch.Bytes>>20)
	if !strings.Contains(string(guide), row) {
		t.Errorf("docs/guides/stores.md does not have the row that it should have:\n%s", row)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
