package etcd_test

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/internal/etcdtest"
	"github.com/weft-go/weft/internal/storebench"
	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/etcd"
)

func BenchmarkCommit(b *testing.B) { storebench.Commit(b, benchStore) }
func BenchmarkRaw(b *testing.B)    { storebench.Raw(b, raw) }
func BenchmarkRatio(b *testing.B)  { storebench.Ratio(b, benchStore, raw) }

// synced starts three members that sync to disk, on this machine.
func synced(t testing.TB) []string {
	return etcdtest.Start(t, etcdtest.Options{Members: 3, Sync: true, Direct: true}).Endpoints()
}

func benchStore(t testing.TB) storage.Storage {
	s, err := etcd.Open(t.Context(), clientv3.Config{Endpoints: synced(t)}, nil)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// raw uses the client, one transaction after the other, without a store.
func raw(t testing.TB) func([]storage.Entry) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: synced(t)[:1]})
	must(t, err)
	t.Cleanup(func() { client.Close() })
	return func(rows []storage.Entry) error {
		ops := make([]clientv3.Op, len(rows))
		for i, r := range rows {
			ops[i] = clientv3.OpPut(string(r.Key), string(r.Value))
		}
		_, err := client.Txn(t.Context()).Then(ops...).Commit()
		return err
	}
}
