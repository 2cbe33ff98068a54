package etcd

import (
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/storage"
)

// comparisons returns the conditions of b. A value is compared in the server, so what was read
// before does not matter.
func (l *layout) comparisons(b storage.Batch) []clientv3.Cmp {
	all := make([]clientv3.Cmp, len(b.If))
	for i, c := range b.If {
		switch key := l.data + string(c.Key); c.Kind {
		case storage.IsEqual:
			all[i] = clientv3.Compare(clientv3.Value(key), "=", string(c.Value))
		case storage.IsAbsent:
			all[i] = clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
		default:
			all[i] = clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
		}
	}
	return all
}

// operations returns the operations of b, which has no DeleteRange.
func (l *layout) operations(b storage.Batch) []clientv3.Op {
	all := make([]clientv3.Op, len(b.Ops), len(b.Ops)+1)
	for i, o := range b.Ops {
		all[i] = l.operation(o)
	}
	return all
}

func (l *layout) operation(o storage.Op) clientv3.Op {
	key := l.data + string(o.Key)
	if o.Kind == storage.DeleteOp {
		return clientv3.OpDelete(key)
	}
	return clientv3.OpPut(key, string(o.Value))
}

// withRanges returns operations that have the effect of those of b in their order. etcd
// executes the operations of a transaction in no order: a key that is put may not be in a range
// that is deleted. So puts before a DeleteRange of their keys are left out, and those after it
// split it.
func (l *layout) withRanges(b storage.Batch) []clientv3.Op {
	var all []clientv3.Op
	var ranges []interval
	var puts []string // that remain, in no order
	for i := len(b.Ops) - 1; i >= 0; i-- {
		o := b.Ops[i]
		if o.Kind == storage.DeleteRangeOp {
			if start, end, some := l.bounds(o.Range); some {
				ranges = append(ranges, interval{start, end})
			}
			continue
		}
		key := l.data + string(o.Key)
		if slices.ContainsFunc(ranges, func(later interval) bool { return later.has(key) }) {
			continue
		}
		if all = append(all, l.operation(o)); o.Kind == storage.PutOp {
			puts = append(puts, key)
		}
	}
	slices.Sort(puts)
	for _, r := range union(ranges) {
		for _, key := range puts {
			if r.has(key) {
				all = appendDelete(all, interval{r.start, key})
				r.start = key + "\x00"
			}
		}
		all = appendDelete(all, r)
	}
	return all
}

// An interval is the keys from start to before end.
type interval struct{ start, end string }

func (r interval) has(key string) bool { return r.start <= key && key < r.end }

func appendDelete(all []clientv3.Op, r interval) []clientv3.Op {
	if r.start >= r.end {
		return all
	}
	return append(all, clientv3.OpDelete(r.start, clientv3.WithRange(r.end)))
}

// union returns intervals that do not overlap, with the same keys.
func union(all []interval) []interval {
	slices.SortFunc(all, func(a, b interval) int { return strings.Compare(a.start, b.start) })
	var merged []interval
	for _, r := range all {
		if n := len(merged); n > 0 && r.start <= merged[n-1].end {
			merged[n-1].end = max(merged[n-1].end, r.end)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// request returns the transaction of a batch.
func (s *Store) request(b storage.Batch) clientv3.Op {
	conditions := s.layout.comparisons(b)
	var ops []clientv3.Op
	if b.HasDeleteRange() {
		ops = s.layout.withRanges(b)
		if len(ops) >= s.options.MaxTxnOps { // there may be almost twice as many as the batch has
			ops = parts(ops, 3)
		}
	} else {
		ops = s.layout.operations(b)
	}
	if len(ops) == 0 { // the batch has none, or only ranges without keys
		// A server judges a transaction without operations by what it has itself, which may be
		// of the past. An operation that reads makes it ask the leader.
		ops = append(ops, clientv3.OpGet(s.layout.format, clientv3.WithCountOnly()))
	}
	if puts(b) && !b.Urgent {
		ops = append(ops, s.watch.note(b))
	}
	return clientv3.OpTxn(conditions, ops, nil)
}

// parts returns n transactions without conditions that together have the operations all. Each
// transaction within a transaction may have almost as many operations as that.
func parts(all []clientv3.Op, n int) []clientv3.Op {
	var txns []clientv3.Op
	for part := range slices.Chunk(all, (len(all)+n-1)/n) {
		txns = append(txns, clientv3.OpTxn(nil, part, nil))
	}
	return txns
}

// requestOf returns one transaction for several batches that share no key: each is a
// transaction within it. etcd judges all conditions before it executes anything.
func (s *Store) requestOf(batches []storage.Batch) clientv3.Op {
	if len(batches) == 1 {
		return s.request(batches[0])
	}
	ops := make([]clientv3.Op, len(batches), len(batches)+1)
	for i, b := range batches {
		ops[i] = clientv3.OpTxn(s.layout.comparisons(b), s.layout.operations(b), nil)
	}
	return clientv3.OpTxn(nil, append(ops, s.watch.note(batches...)), nil)
}
