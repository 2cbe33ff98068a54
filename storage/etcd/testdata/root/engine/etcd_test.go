package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/internal/etcdtest"
	"github.com/weft-go/weft/internal/sweep"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/etcd"
)

func init() {
	realStores["etcd"] = func(*testing.T) (storage.Storage, error) { return openEtcd() }
	sweepStores["etcd"] = sweep.Store{Open: openOutside}
}

// members starts a cluster that all tests share, and returns its addresses. Each store in it has a
// prefix of its own.
var members = sync.OnceValues(func() ([]string, error) {
	c, stop, err := etcdtest.Launch(etcdtest.Options{Members: 3})
	if err != nil {
		return nil, err
	}
	afterAll = append(afterAll, stop)
	return c.Endpoints(), nil
})

var plays atomic.Int64

func openEtcd() (storage.Storage, error) {
	all, err := members()
	if err != nil {
		return nil, err
	}
	return stored(etcd.Open(context.Background(), clientv3.Config{Endpoints: all}, &etcd.Options{Prefix: fmt.Sprintf("play%d/", plays.Add(1))}))
}

// outside is a store that is called from a testing/synctest bubble, and works outside of it: time
// would stand still in a bubble in which a connection is read. For the bubble its calls take no
// time.
type outside struct{ store storage.Storage }

// A job is a function that is called outside of the bubble.
type job struct {
	do   func()
	done chan struct{}
}

// jobs are made outside of any bubble.
var jobs = make(chan *job, 256)
var handed = make(chan *job)

func init() {
	afterAll = append(afterAll, func() { close(handed) })
	for range cap(jobs) {
		jobs <- &job{done: make(chan struct{}, 1)}
		go func() {
			for e := range handed {
				e.do()
				e.done <- struct{}{}
			}
		}()
	}
}

func outsideOf(f func()) {
	e := <-jobs
	e.do = f
	handed <- e
	<-e.done
	e.do = nil
	jobs <- e
}

func openOutside(t testing.TB) storage.Storage {
	var s storage.Storage
	var err error
	outsideOf(func() { s, err = openEtcd() })
	if err != nil {
		t.Fatal(err)
	}
	return &outside{s}
}

func (o *outside) Get(ctx context.Context, key []byte) (value []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	outsideOf(func() { value, err = o.store.Get(context.Background(), key) })
	return value, err
}

func (o *outside) Scan(ctx context.Context, r storage.Range) (page []storage.Entry, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	outsideOf(func() { page, err = o.store.Scan(context.Background(), r) })
	return page, err
}

func (o *outside) Commit(ctx context.Context, b storage.Batch) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	outsideOf(func() { err = o.store.Commit(context.Background(), b) })
	return err
}

func (o *outside) Close() (err error) {
	outsideOf(func() { err = o.store.Close() })
	return err
}

func (o *outside) Capabilities() storage.Capabilities { return o.store.Capabilities() }
