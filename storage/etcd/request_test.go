package etcd_test

import (
	"testing"

	"github.com/weft-go/weft/storage"
	"github.com/weft-go/weft/storage/etcd"
)

// readers are batches with a condition that write nothing.
func readers(c storage.Condition) map[string]storage.Batch {
	b := storage.Batch{If: []storage.Condition{c}}
	all := map[string]storage.Batch{"no operations": b}
	for name, r := range map[string]storage.Range{
		"a range that ends before it starts": {Start: []byte("b"), End: []byte("a")},
		"a range that ends before every key": {End: []byte{}},
	} {
		b.Ops = []storage.Op{storage.DeleteRange(r)}
		all[name] = b
		b.Ops = append(b.Ops, storage.DeleteRange(r))
		all["twice "+name] = b
	}
	return all
}

// Every transaction has an operation: a server judges one without any by what it has itself.
func TestNoRequestWithoutOperations(t *testing.T) {
	o := etcd.Options{Prefix: "p/", MaxTxnOps: 128}
	for name, b := range readers(storage.Present([]byte("k"))) {
		for _, urgent := range []bool{false, true} {
			b.Urgent = urgent
			conditions, ops, _ := etcd.Request(o, b).Txn()
			if len(conditions) != 1 || len(ops) == 0 {
				t.Errorf("%s, urgent %t: got %d conditions and %d operations, want 1 and some", name, urgent, len(conditions), len(ops))
			}
		}
	}
	// Ranges without keys are left out of others.
	b := storage.Batch{Ops: []storage.Op{storage.DeleteRange(storage.Range{End: []byte{}}), storage.DeleteRange(storage.Range{End: []byte("a")})}}
	if _, ops, _ := etcd.Request(o, b).Txn(); len(ops) != 1 || !ops[0].IsDelete() {
		t.Errorf("got %v, want one delete", ops)
	}
}
