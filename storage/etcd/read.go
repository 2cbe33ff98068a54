package etcd

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/storage"
)

// Get returns the value of key, or storage.ErrNotFound.
func (s *Store) Get(ctx context.Context, key []byte) ([]byte, error) {
	value, err := s.get(ctx, key)
	return value, wrap("get", err)
}

func (s *Store) get(ctx context.Context, key []byte) (value []byte, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	name := s.layout.data + string(key)
	err = s.read(ctx, func(ctx context.Context) error {
		answer, err := s.client.Get(ctx, name)
		if err != nil {
			return err
		}
		if len(answer.Kvs) == 0 {
			return storage.ErrNotFound
		}
		value = notNil(answer.Kvs[0].Value)
		return nil
	})
	return value, err
}

// Scan returns a page. It reads long pages in several requests, all at the revision of the
// first, so the page is one consistent view.
func (s *Store) Scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	page, err := s.scan(ctx, r)
	return page, wrap("scan", err)
}

func (s *Store) scan(ctx context.Context, r storage.Range) ([]storage.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.calls.Done()
	start, end, some := s.layout.bounds(r)
	if !some {
		return nil, nil
	}
	limit := r.Limit
	if limit <= 0 {
		limit = storage.DefaultLimit
	}
	for {
		page, err := s.pageAt(ctx, start, end, limit, r.Reverse)
		if !errors.Is(err, rpctypes.ErrCompacted) {
			return page, err
		}
		// The revision was compacted between two requests. Read the page at a later one.
	}
}

// atOnce is how many entries a request reads.
const atOnce = storage.DefaultLimit

// pageAt reads a page at one revision, which is that of its first request.
func (s *Store) pageAt(ctx context.Context, start, end string, limit int, reverse bool) (page []storage.Entry, err error) {
	var revision int64
	for {
		options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(int64(min(limit-len(page), atOnce))), clientv3.WithRev(revision)}
		if reverse {
			options = append(options, clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
		}
		var answer *clientv3.GetResponse
		err := s.read(ctx, func(ctx context.Context) (err error) {
			answer, err = s.client.Get(ctx, start, options...)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, kv := range answer.Kvs {
			page = append(page, storage.Entry{Key: kv.Key[len(s.layout.data):], Value: notNil(kv.Value)})
		}
		if !answer.More || len(page) >= limit {
			return page, nil
		}
		if revision == 0 { // later answers have the revision of the store, not that of the page
			revision = answer.Header.Revision
		}
		if last := string(answer.Kvs[len(answer.Kvs)-1].Key); reverse {
			end = last
		} else {
			start = last + "\x00"
		}
	}
}

// bounds returns the range of keys in the cluster that r is. It is empty if there are none.
func (l *layout) bounds(r storage.Range) (start, end string, some bool) {
	start, end = l.data+string(r.Start), l.end
	if r.End != nil {
		end = l.data + string(r.End)
	}
	return start, end, strings.Compare(start, end) < 0 && (r.End == nil || bytes.Compare(r.Start, r.End) < 0)
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
