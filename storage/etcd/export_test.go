package etcd

// Turn turns to the next member.
func (s *Store) Turn() { s.members.leave(s.members.current()) }
