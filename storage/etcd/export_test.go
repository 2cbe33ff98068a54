package etcd

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weft-go/weft/storage"
)

// What errors mean.
var (
	Away    = away
	Refused = refused
)

// Member is the member in use: it is another one when the number is.
func (s *Store) Member() int { return s.members.current() }

// Endpoints are the addresses of the members that the client uses.
func (s *Store) Endpoints() []string { return s.client.Endpoints() }

// Turn turns to the next member.
func (s *Store) Turn() { s.members.leave(s.members.current()) }

// Request returns the transaction of a batch.
func Request(o Options, b storage.Batch) clientv3.Op {
	s := &Store{options: o, layout: newLayout(o.Prefix), watch: &watcher{}}
	s.watch.store = s
	return s.request(b)
}
