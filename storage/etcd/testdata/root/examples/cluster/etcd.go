package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/internal/etcdtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/etcd"
)

func init() {
	stores["etcd"] = place{make: launchEtcd, open: openEtcd, shop: openSQLiteShop, cut: cutEtcd}
}

// running is the cluster of the process that has started it.
var running *etcdtest.Cluster

// endpoints is a file in the directory: where the members are.
const endpoints = "etcd.endpoints"

// launchEtcd starts three members, and kills one of them at random every few seconds. The shop's
// database is a file.
func launchEtcd() (where string, stop func(), err error) {
	where, remove, err := folder()
	if err != nil {
		return "", nil, err
	}
	c, stopCluster, err := etcdtest.Launch(etcdtest.Options{Members: 3, Sync: true, Election: etcdtest.Fast})
	if err == nil {
		err = os.WriteFile(filepath.Join(where, endpoints), []byte(strings.Join(c.Endpoints(), " ")), 0o600)
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	running = c
	ctx, cancel := context.WithCancel(context.Background())
	var killing sync.WaitGroup
	killed := 0
	killing.Go(func() {
		for sleep(ctx, time.Second+rand.N(3*time.Second)) {
			m := c.Members[rand.N(3)]
			m.Kill()
			killed++
			sleep(ctx, rand.N(2*time.Second))
			if err := m.Restart(); err != nil {
				panic(err)
			}
			if err := m.Ready(); err != nil && ctx.Err() == nil {
				panic(err)
			}
		}
	})
	return where, func() {
		cancel()
		killing.Wait()
		stopCluster()
		remove()
		fmt.Printf("cluster: members were killed %d times\n", killed)
	}, nil
}

func openEtcd(ctx context.Context, where, _ string) (storage.Storage, error) {
	all, err := os.ReadFile(filepath.Join(where, endpoints))
	if err != nil {
		return nil, err
	}
	return etcd.Open(ctx, clientv3.Config{Endpoints: strings.Fields(string(all))}, nil)
}

// cutEtcd cuts the connections of all processes: the proxies do not know whose they are.
func cutEtcd(context.Context, string, string) error {
	for _, m := range running.Members {
		m.Client.Cut()
	}
	return nil
}
