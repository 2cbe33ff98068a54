package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/internal/etcdtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/etcd"
)

func init() {
	stores["etcd"] = openEtcd
	servers["etcd"] = serveEtcd
}

// endpoints is a file in the directory: where the members are.
const endpoints = "etcd.endpoints"

func openEtcd(dir string) (storage.Storage, error) {
	all, err := os.ReadFile(filepath.Join(dir, endpoints))
	if err != nil {
		return nil, err
	}
	return etcd.Open(context.Background(), clientv3.Config{Endpoints: strings.Fields(string(all))}, nil)
}

// serveEtcd starts three members. url, if not empty, is the addresses of others.
func serveEtcd(dir, url string) (stop func(), err error) {
	stop = func() {}
	if url == "" {
		var c *etcdtest.Cluster
		if c, stop, err = etcdtest.Launch(etcdtest.Options{Members: 3, Sync: true}); err != nil {
			return nil, err
		}
		url = strings.Join(c.Endpoints(), " ")
	}
	return stop, os.WriteFile(filepath.Join(dir, endpoints), []byte(url), 0o600)
}
