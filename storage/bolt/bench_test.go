package bolt_test

import (
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/weft-go/weft/internal/storebench"
	"github.com/weft-go/weft/storage"
)

func BenchmarkCommit(b *testing.B) { storebench.Commit(b, benchStore) }
func BenchmarkRaw(b *testing.B)    { storebench.Raw(b, raw) }
func BenchmarkRatio(b *testing.B)  { storebench.Ratio(b, benchStore, raw) }

func benchStore(t testing.TB) storage.Storage {
	return open(t, filepath.Join(t.TempDir(), "store.db"), nil)
}

// raw uses bbolt with its default options.
func raw(t testing.TB) func([]storage.Entry) error {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "raw.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return func(rows []storage.Entry) error {
		return db.Update(func(tx *bbolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("raw"))
			for _, r := range rows {
				if err == nil {
					err = bucket.Put(r.Key, r.Value)
				}
			}
			return err
		})
	}
}
