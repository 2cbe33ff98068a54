package control

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/internal/etcdtest"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/etcd"
)

func init() {
	Stores["etcd"] = func(t *testing.T) (storage.Storage, error) {
		c, stop, err := etcdtest.Launch(etcdtest.Options{Members: 3})
		if err != nil {
			return nil, err
		}
		t.Cleanup(stop)
		return etcd.Open(t.Context(), clientv3.Config{Endpoints: c.Endpoints()}, nil)
	}
}
